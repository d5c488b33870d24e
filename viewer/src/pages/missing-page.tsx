/** The page of an address that leads nowhere. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { texts } from "../texts";

export function MissingPage(): ReactNode {
  return (
    <main data-testid="page" data-page="missing" data-ready="1" className="p-6">
      <title>{`${texts.missing.title} · Easel`}</title>
      <h1 className="mb-2 text-lg font-semibold">{texts.missing.title}</h1>
      <p className="mb-2">{texts.missing.text}</p>
      <Link to="/open" className="text-accent underline">
        {texts.missing.link}
      </Link>
    </main>
  );
}
