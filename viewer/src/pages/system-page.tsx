/** `/system`: whether the deployment works. For administrators; it is that of all tenants. */
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { readSystem } from "../api/figures";
import { aboutQuery } from "../api/queries";
import { ApiError } from "../api/request";
import { SystemState } from "../system/system-state";
import { texts } from "../texts";
import { CopyButton, Empty } from "../ui/parts";
import { TopBar } from "../ui/shell";

const t = texts.system;
const REFRESH_MS = 3000;

export function SystemPage(): ReactNode {
  const { data: about } = useQuery({ ...aboutQuery, enabled: false });
  const isAdmin = about?.may?.includes("administer") ?? false;
  return isAdmin ? <WholeSystem /> : <Refused />;
}

function WholeSystem(): ReactNode {
  const { data, error, isPending } = useQuery({
    queryKey: ["system"],
    queryFn: ({ signal }) => readSystem(signal),
    refetchInterval: REFRESH_MS,
    staleTime: 0,
    retry: false, // it is read again at once anyway
  });
  return (
    <main data-testid="page" data-page="system" data-ready={isPending ? "0" : "1"} data-live={error ? "away" : "polling"} className="flex min-h-0 flex-1 flex-col">
      <title>{`${t.title} · Easel`}</title>
      <TopBar crumbs={<h1 className="font-semibold">{t.title}</h1>} actions={<span className="truncate text-ink-2">{t.refresh}</span>} />
      {error ? (
        <p role="alert" data-tone="red" className="shrink-0 bg-tone-soft px-3 py-1.5 text-tone">
          {error instanceof ApiError && error.status === 0 ? t.away : error.message}
        </p>
      ) : null}
      {isPending ? <Empty>{t.loading}</Empty> : null}
      {data ? <SystemState state={data} /> : null}
    </main>
  );
}

function Refused(): ReactNode {
  return (
    <main data-testid="page" data-page="system" data-ready="1" data-live="off" className="flex min-h-0 flex-1 flex-col">
      <title>{`${t.title} · Easel`}</title>
      <TopBar crumbs={<h1 className="font-semibold">{t.title}</h1>} />
      <div className="max-w-2xl p-4">
        <p className="mb-3">{t.refused}</p>
        <p className="flex flex-wrap items-center gap-2">
          {t.refusedHow}
          <code className="rounded bg-panel px-2 py-1 font-mono text-xs">{t.command}</code>
          <CopyButton text={() => t.command} />
        </p>
      </div>
    </main>
  );
}
