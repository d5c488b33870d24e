/** What stands in place of a page while the API does not answer. */
import { useRouter } from "@tanstack/react-router";
import { useEffect, type ReactNode } from "react";

import { texts } from "../texts";
import { Button } from "../ui/parts";

const AGAIN_MS = 5000;

export function UnreachablePage({ error }: { error: unknown }): ReactNode {
  const router = useRouter();
  useEffect(() => {
    const timer = setInterval(() => void router.invalidate(), AGAIN_MS);
    return () => clearInterval(timer);
  }, [router]);
  return (
    <main data-testid="page" data-page="unreachable" data-ready="1" data-live="away" className="p-6">
      <h1 className="mb-2 text-lg font-semibold">{texts.unreachable.title}</h1>
      <p role="alert" className="mb-3">
        {error instanceof Error ? error.message : String(error)}
      </p>
      <Button onClick={() => void router.invalidate()}>{texts.unreachable.again}</Button>
    </main>
  );
}
