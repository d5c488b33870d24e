/** The table of agents. The whole row is a link; a tag in it selects the agents that have it. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import type { AgentRow } from "../api/replies";
import { runLook, type Look } from "../store/run-status";
import { texts } from "../texts";
import { count, moment } from "../ui/format";
import { StateBadge } from "../ui/parts";
import { useNarrow } from "../ui/use-width";
import { visibleName } from "../ui/visible-text";

const t = texts.agents;
const WIDE = "grid grid-cols-[minmax(10rem,1.4fr)_minmax(6rem,0.8fr)_minmax(11rem,13rem)_6.5rem_7rem_9.5rem] items-center gap-x-3 px-3";
const PUBLISHED: Look = { word: t.published, icon: "▲", tone: "green", border: "solid" };

export function AgentTable({ rows, onTag, children }: { rows: readonly AgentRow[]; onTag: (tag: string) => void; children: ReactNode }): ReactNode {
  const isNarrow = useNarrow(1000);
  const { agent, tags, lastRun, runs, failed, updated } = t.columns;
  return (
    <div className="min-h-0 flex-1 overflow-auto" tabIndex={0} role="region" aria-label={t.list}>
      <div role="table" aria-label={t.list}>
        <div role="rowgroup" className={isNarrow ? "sr-only" : "sticky top-0 z-20"}>
          <div role="row" className={`${WIDE} h-8 border-b border-line bg-panel text-ink-2`}>
            <span role="columnheader">{agent}</span>
            <span role="columnheader">{tags}</span>
            <span role="columnheader">{lastRun}</span>
            <span role="columnheader" className="text-right">{runs}</span>
            <span role="columnheader" className="text-right">{failed}</span>
            <span role="columnheader">{updated}</span>
          </div>
        </div>
        <div role="rowgroup">
          {rows.map((row) => (
            <div
              key={row.id}
              role="row"
              data-testid="agent-row"
              data-agent-id={row.id}
              className={`relative border-b border-line hover:bg-panel has-[a:focus-visible]:bg-accent-soft ${isNarrow ? "flex flex-wrap items-center gap-x-3 gap-y-1 px-3 py-2" : `${WIDE} min-h-11 py-1`}`}
            >
              <Cells row={row} isNarrow={isNarrow} onTag={onTag} />
            </div>
          ))}
        </div>
      </div>
      {children}
    </div>
  );
}

function Cells({ row, isNarrow, onTag }: { row: AgentRow; isNarrow: boolean; onTag: (tag: string) => void }): ReactNode {
  return (
    <>
      <span role="cell" className={isNarrow ? "w-full min-w-0" : "min-w-0"}>
        <span className="flex min-w-0 items-center gap-2">
          <Link
            to="/agents/$agentId"
            params={{ agentId: row.id }}
            className="min-w-0 truncate font-medium after:absolute after:inset-0 after:content-[''] focus-visible:outline-offset-[-2px]"
          >
            <bdi>{visibleName(row.title, 120)}</bdi>
          </Link>
          {row.published ? <StateBadge look={PUBLISHED} /> : null}
        </span>
        {row.description ? <span className="block truncate text-ink-2">{visibleName(row.description, 160)}</span> : null}
      </span>
      <span role="cell" className={`flex min-w-0 flex-wrap gap-1 ${isNarrow && !row.tags.length ? "sr-only" : ""}`}>
        {row.tags.slice(0, 8).map((tag) => (
          <button
            key={tag}
            type="button"
            aria-label={t.withTag(visibleName(tag, 60))}
            onClick={() => onTag(tag)}
            className="relative z-10 min-h-6 max-w-32 truncate rounded border border-line bg-panel px-1.5 hover:border-accent"
          >
            <bdi>{visibleName(tag, 60)}</bdi>
          </button>
        ))}
      </span>
      <span role="cell" className="flex min-w-0 flex-wrap items-center gap-x-2">
        <LastRun run={row.last_run} />
      </span>
      <span role="cell" className={isNarrow ? "text-ink-2 tabular-nums" : "text-right tabular-nums"}>
        {isNarrow ? `${t.columns.runs}: ` : null}
        {count(row.runs_24h)}
      </span>
      <span role="cell" className={isNarrow ? "tabular-nums" : "text-right tabular-nums"}>
        <FailureRate failed={row.failed_24h} runs={row.runs_24h} isNarrow={isNarrow} />
      </span>
      <span role="cell" className={`text-ink-2 tabular-nums ${isNarrow ? "hidden sm:inline" : ""}`}>
        <time dateTime={row.updated_at}>{moment(Date.parse(row.updated_at)).slice(0, 16)}</time>
      </span>
    </>
  );
}

function LastRun({ run }: { run: AgentRow["last_run"] }): ReactNode {
  if (!run || typeof run.status !== "string") return <span className="text-ink-2">{t.noRun}</span>;
  const at = typeof run.created_at === "string" ? run.created_at : "";
  return (
    <>
      <StateBadge look={runLook(run.status)} />
      <time dateTime={at} className="text-ink-2 tabular-nums">
        {moment(Date.parse(at)).slice(5, 16)}
      </time>
    </>
  );
}

function FailureRate({ failed, runs, isNarrow }: { failed: number; runs: number; isNarrow: boolean }): ReactNode {
  if (!runs) return isNarrow ? null : <span className="text-ink-2">–</span>;
  const share = failed ? `${Math.max(1, Math.round((100 * failed) / runs))} %` : "0 %";
  return (
    <span title={t.failedOf(failed, runs)} className={failed ? "font-medium text-red" : "text-ink-2"}>
      {failed ? <span aria-hidden="true">✗ </span> : null}
      {share}
      <span className="sr-only"> {t.failedOf(failed, runs)}</span>
    </span>
  );
}
