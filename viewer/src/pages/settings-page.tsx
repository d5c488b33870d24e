/** `/settings`: what a reader sets for this browser, and where this token is signed in. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { aboutQuery } from "../api/queries";
import { Choices, SingleKeys } from "../settings/choices";
import { SignIns } from "../settings/sign-ins";
import { texts } from "../texts";
import { moment } from "../ui/format";
import { TopBar } from "../ui/shell";
import { useNow } from "../ui/use-now";
import { visibleName } from "../ui/visible-text";

const t = texts.settings;

export function SettingsPage(): ReactNode {
  const now = useNow();
  return (
    <main data-testid="page" data-page="settings" data-ready="1" data-live="off" className="flex min-h-0 flex-1 flex-col">
      <title>{`${t.title} · Easel`}</title>
      <TopBar crumbs={<h1 className="font-semibold">{t.title}</h1>} />
      <div className="min-h-0 flex-1 overflow-auto" tabIndex={0} role="region" aria-label={t.title}>
        <div className="mx-auto flex max-w-3xl flex-col gap-6 p-4">
          <p className="text-ink-2">{t.intro}</p>
          <Part title={t.appearance}>
            <Choices name="theme" />
            <Choices name="density" />
            <Choices name="motion" />
            <Choices name="rail" />
          </Part>
          <Part title={t.times}>
            <Choices name="zone" />
            <Choices name="times" />
            <p className="text-ink-2 tabular-nums">{t.now(moment(now))}</p>
          </Part>
          <Part title={t.keys}>
            <SingleKeys />
          </Part>
          <Account />
          <Part title={t.signIns} hint={t.signInsHint}>
            <SignIns now={now} />
          </Part>
          <Part title={t.shares} hint={t.sharesHint}>
            <Link to="/runs" className="inline-block min-h-6 w-fit leading-6 text-accent underline">
              {t.sharesLink}
            </Link>
          </Part>
        </div>
      </div>
    </main>
  );
}

function Account(): ReactNode {
  const { data: about } = useQuery({ ...aboutQuery, enabled: false });
  const tenant = typeof about?.tenant?.name === "string" ? about.tenant.name : "";
  return (
    <Part title={t.account}>
      <dl className="grid grid-cols-[auto_1fr] gap-x-4 gap-y-1">
        <dt className="text-ink-2">{t.tenant}</dt>
        <dd>
          <bdi>{visibleName(tenant, 120) || "–"}</bdi>
        </dd>
        <dt className="text-ink-2">{t.kind}</dt>
        <dd>{about?.kind ?? "–"}</dd>
        <dt className="text-ink-2">{t.may}</dt>
        <dd>{about?.may?.map((right) => t.rights[right] ?? right).join(", ") ?? "–"}</dd>
      </dl>
    </Part>
  );
}

function Part({ title, hint, children }: { title: string; hint?: string; children: ReactNode }): ReactNode {
  return (
    <section aria-label={title} className="flex flex-col gap-2">
      <h2 className="border-b border-line pb-1 text-base font-semibold">{title}</h2>
      {hint === undefined ? null : <p className="text-ink-2">{hint}</p>}
      {children}
    </section>
  );
}
