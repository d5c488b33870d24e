/** The latest runs of an agent. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { listRecentRuns } from "../api/agents";
import { runLook } from "../store/run-status";
import { texts } from "../texts";
import { moment } from "../ui/format";
import { StateBadge } from "../ui/parts";
import { visibleName } from "../ui/visible-text";

const t = texts.agent;
const SHOWN = 8;
const REFRESH_MS = 5000;

export function RecentRuns({ agentId }: { agentId: string }): ReactNode {
  const { data, error } = useQuery({
    queryKey: ["recent-runs", agentId],
    queryFn: ({ signal }) => listRecentRuns(agentId, SHOWN, signal),
    staleTime: 0,
    refetchInterval: REFRESH_MS,
  });
  return (
    <section>
      <h2 className="mb-1 font-semibold">{t.recentRuns}</h2>
      {error ? <p role="alert">{error.message}</p> : null}
      <ul className="flex flex-col">
        {data?.runs.map((run) => (
          <li key={run.id} data-testid="run-row" data-run-id={run.id} data-status={run.status} className="relative border-b border-line py-1.5 hover:bg-panel">
            <span className="flex items-center gap-2">
              <StateBadge look={runLook(run.status)} />
              <Link to="/runs/$runId" params={{ runId: run.id }} className="min-h-6 leading-6 text-ink-2 tabular-nums after:absolute after:inset-0 after:content-['']">
                <time dateTime={run.created_at}>{moment(Date.parse(run.created_at))}</time>
              </Link>
              {run.version_number ? <span className="text-ink-2">› {run.version_number}</span> : null}
            </span>
            <span className={`block truncate ${run.error ? "text-red" : ""}`}>
              <bdi>{visibleName(run.error ?? run.query ?? "", 160)}</bdi>
            </span>
          </li>
        ))}
      </ul>
      {data && !data.runs.length ? <p className="text-ink-2">{t.noRuns}</p> : null}
      {data?.runs.length ? (
        <Link to="/runs" search={{ agent: agentId }} className="inline-block min-h-6 leading-6 text-accent underline">
          {t.allRuns}
        </Link>
      ) : null}
    </section>
  );
}
