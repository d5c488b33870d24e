/** The table of runs, of which only the rows in view exist. The whole row is a link. */
import { Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, type ReactNode } from "react";

import type { RunRow } from "../api/replies";
import { usageOf } from "../run-file/rows";
import { isOver, runLook } from "../store/run-status";
import { texts } from "../texts";
import { clock, count, duration, moment, money } from "../ui/format";
import { StateBadge } from "../ui/parts";
import { useNarrow } from "../ui/use-width";
import { visibleName } from "../ui/visible-text";
import { recallPlace, rememberPlace } from "./list-place";

const t = texts.runs;
const ROW_HEIGHT = 36;
const NARROW_ROW_HEIGHT = 62;
const WIDE = "grid grid-cols-[1.75rem_11rem_minmax(7rem,11rem)_minmax(7rem,1fr)_4.5rem_6.5rem_4rem_4.5rem] xl:grid-cols-[1.75rem_12.5rem_minmax(7rem,15rem)_minmax(8rem,1fr)_10rem_6rem_4.5rem_5.5rem_6.5rem] items-center gap-x-3 px-3";

interface Props {
  rows: readonly RunRow[];
  now: number;
  /** What the place in the list is remembered under. */
  placeKey: string;
  selected: ReadonlySet<string>;
  /** Null if the reader may not change anything. */
  onSelect: ((id: string, isSelected: boolean) => void) | null;
  onAtTop: (isAtTop: boolean) => void;
  children: ReactNode;
}

export function RunTable({ rows, now, placeKey, selected, onSelect, onAtTop, children }: Props): ReactNode {
  const scroller = useRef<HTMLDivElement>(null);
  const isNarrow = useNarrow(900);
  const height = isNarrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT;
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    getItemKey: (index) => rows[index]?.id ?? index,
    overscan: 10,
    scrollPaddingStart: isNarrow ? 0 : ROW_HEIGHT,
  });
  useEffect(() => virtual.measure(), [virtual, height]);
  useEffect(() => {
    const place = recallPlace(placeKey);
    if (!place || !scroller.current) return;
    scroller.current.scrollTop = place.scrollTop;
    requestAnimationFrame(() => document.getElementById(`run-${place.runId}`)?.focus({ preventScroll: true }));
  }, [placeKey]);
  return (
    <div
      ref={scroller}
      className="min-h-0 flex-1 overflow-auto"
      onScroll={(event) => onAtTop(event.currentTarget.scrollTop < ROW_HEIGHT)}
      tabIndex={0}
      role="region"
      aria-label={t.table}
    >
      <div role="table" aria-label={t.table} aria-rowcount={rows.length + 1}>
        <div role="rowgroup" className={isNarrow ? "sr-only" : "sticky top-0 z-20"}>
          <Head isSelectable={onSelect !== null} />
        </div>
        <div role="rowgroup" className="relative" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const run = rows[item.index];
            if (!run) return null;
            return (
              <div
                key={run.id}
                role="row"
                aria-rowindex={item.index + 2}
                data-testid="run-row"
                data-run-id={run.id}
                data-status={run.status}
                style={{ height, transform: `translateY(${item.start}px)` }}
                className={`absolute inset-x-0 border-b border-line hover:bg-panel has-[a:focus-visible]:bg-accent-soft ${selected.has(run.id) ? "bg-accent-soft" : ""} ${isNarrow ? "grid grid-cols-[1.75rem_minmax(0,1fr)_auto] grid-rows-2 items-center gap-x-2 px-3" : WIDE}`}
              >
                <Cells
                  run={run}
                  now={now}
                  isNarrow={isNarrow}
                  isSelected={selected.has(run.id)}
                  onSelect={onSelect}
                  onOpen={() => rememberPlace(placeKey, { runId: run.id, scrollTop: scroller.current?.scrollTop ?? 0 })}
                />
              </div>
            );
          })}
        </div>
      </div>
      {children}
    </div>
  );
}

function Head({ isSelectable }: { isSelectable: boolean }): ReactNode {
  const { select, ...others } = t.columns;
  return (
    <div role="row" aria-rowindex={1} className={`${WIDE} h-8 border-b border-line bg-panel text-ink-2`}>
      <span role="columnheader">{isSelectable ? <span className="sr-only">{select}</span> : null}</span>
      {Object.entries(others).map(([name, title]) => (
        <span key={name} role="columnheader" className={NUMERIC.has(name) ? `text-right ${name === "cost" ? "hidden xl:block" : ""}` : ""}>
          {title}
        </span>
      ))}
    </div>
  );
}

const NUMERIC = new Set(["took", "steps", "tokens", "cost"]);

interface CellsProps {
  run: RunRow;
  now: number;
  isNarrow: boolean;
  isSelected: boolean;
  onSelect: Props["onSelect"];
  onOpen: () => void;
}

function Cells({ run, now, isNarrow, isSelected, onSelect, onOpen }: CellsProps): ReactNode {
  const usage = usageOf(run.usage);
  const title = visibleName(run.agent_title ?? run.agent_id ?? "–", 120);
  const created = Date.parse(run.created_at);
  const waits = run.status === "waiting" && run.waits ? t.waits[run.waits] : undefined;
  const look = runLook(run.status);
  const badge = <StateBadge look={waits === undefined ? look : { ...look, icon: run.waits === "budget" ? "¤" : "?", word: waits }} />;
  const box = (
    <span role="cell" className="relative z-10">
      {onSelect ? (
        <input
          type="checkbox"
          className="size-5 align-middle"
          aria-label={`${t.select(title)}, ${moment(created)}`}
          checked={isSelected}
          onChange={(event) => onSelect(run.id, event.target.checked)}
        />
      ) : null}
    </span>
  );
  const link = (
    <span role="cell" className="min-w-0 truncate">
      <Link
        id={`run-${run.id}`}
        to="/runs/$runId"
        params={{ runId: run.id }}
        onClick={onOpen}
        className="font-medium after:absolute after:inset-0 after:content-[''] focus-visible:outline-offset-[-2px]"
      >
        <bdi>{title}</bdi>
      </Link>
      {run.version_number ? <span className="text-ink-2"> › {run.version_number}</span> : null}
      {run.origin ? <span title={texts.run.origin(visibleName(String(run.origin.kind), 30))}> {run.origin.kind === "fork" ? "⑂" : "↻"}</span> : null}
    </span>
  );
  const query = (
    <span role="cell" className="min-w-0 truncate">
      <bdi className={run.error ? "text-red" : "text-ink-2"}>{visibleName(run.error ?? run.query ?? "", 200)}</bdi>
    </span>
  );
  const started = (
    <span role="cell" className="truncate text-ink-2 tabular-nums">
      <time dateTime={run.created_at} title={moment(created)}>
        {startedText(created, now)}
      </time>
    </span>
  );
  const took = (
    <span role="cell" className="text-right tabular-nums">
      {duration(tookOf(run, now))}
    </span>
  );
  if (isNarrow) {
    return (
      <>
        {box}
        {link}
        <span role="cell" className="justify-self-end">
          {badge}
        </span>
        <span role="presentation" />
        {query}
        <span role="presentation" className="flex justify-end gap-2">
          {started}
          {took}
        </span>
      </>
    );
  }
  const { activated = 0, active = 0, queued = 0 } = run.progress ?? {};
  return (
    <>
      {box}
      <span role="cell" className="min-w-0 overflow-hidden">
        {badge}
      </span>
      {link}
      {query}
      {started}
      {took}
      <span role="cell" className="text-right tabular-nums">
        {isOver(run.status) || !(active + queued) ? count(activated) : `${count(Math.max(0, activated - active - queued))}/${count(activated)}`}
      </span>
      <span role="cell" className="text-right tabular-nums">
        {count(usage.promptTokens + usage.completionTokens)}
      </span>
      <span role="cell" className="hidden truncate text-right tabular-nums xl:block">
        {money(usage.cost) ?? "–"}
      </span>
    </>
  );
}

/** Return the milliseconds that a run has taken so far. */
function tookOf(run: RunRow, now: number): number | null {
  if (run.elapsed_ms !== null) return run.elapsed_ms;
  const began = Date.parse(run.started_at ?? run.created_at);
  return Number.isNaN(began) || !now ? null : Math.max(0, now - began);
}

const DAY_MS = 86_400_000;

function startedText(created: number, now: number): string {
  return now - created < DAY_MS / 2 ? clock(created) : moment(created).slice(0, 16);
}
