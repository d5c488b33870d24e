/** The table of runs, of which only the rows in view exist. The whole row is a link. */
import { Link } from "@tanstack/react-router";
import { defaultRangeExtractor, useVirtualizer, type Range } from "@tanstack/react-virtual";
import { useCallback, useEffect, useRef, useState, type CSSProperties, type ReactNode } from "react";

import type { RunRow } from "../api/replies";
import { usageOf } from "../run-file/rows";
import { isOver, runLook } from "../store/run-status";
import { texts } from "../texts";
import { age, clock, count, duration, minute, moment, money } from "../ui/format";
import { StateBadge } from "../ui/parts";
import { useSettings } from "../ui/settings";
import { useShortcut } from "../ui/shortcuts";
import { useStored } from "../ui/stored-value";
import { useNarrow, useWindowWidth } from "../ui/use-width";
import { visibleName } from "../ui/visible-text";
import { gridOf, hiddenColumns, shownColumns, type Column, type ColumnName } from "./columns";
import { recallPlace, rememberPlace } from "./list-place";

const t = texts.runs;
const ROW_HEIGHTS = { normal: 36, compact: 28 } as const;
const NARROW_ROW_HEIGHT = 62;
const NARROW = "grid grid-cols-[1.75rem_minmax(0,1fr)_auto] grid-rows-2 items-center gap-x-2 px-3";
const WIDE = "grid items-center gap-x-3 px-3";

type OnSelect = (ids: readonly string[], isSelected: boolean) => void;

interface Props {
  rows: readonly RunRow[];
  now: number;
  /** What the place in the list is remembered under. */
  placeKey: string;
  selected: ReadonlySet<string>;
  /** Null if the reader may not change anything. */
  onSelect: OnSelect | null;
  onAtTop: (isAtTop: boolean) => void;
  children: ReactNode;
}

export function RunTable({ rows, now, placeKey, selected, onSelect, onAtTop, children }: Props): ReactNode {
  const scroller = useRef<HTMLDivElement>(null);
  const [focused, setFocused] = useState<string | null>(null);
  const isNarrow = useNarrow(900);
  const width = useWindowWidth();
  const { density, times } = useSettings();
  const hidden = useStored(hiddenColumns);
  const columns = shownColumns(hidden, width);
  const grid: CSSProperties = isNarrow ? {} : { gridTemplateColumns: gridOf(columns, width, times === "absolute") };
  const headHeight = ROW_HEIGHTS.normal;
  const height = isNarrow ? NARROW_ROW_HEIGHT : ROW_HEIGHTS[density];
  const focusedPlace = focused === null ? -1 : rows.findIndex((run) => run.id === focused);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    getItemKey: (index) => rows[index]?.id ?? index,
    overscan: 10,
    scrollPaddingStart: isNarrow ? 0 : headHeight,
    // the row with the focus stays, wherever it is, so that the focus is never lost
    rangeExtractor: useCallback(
      (range: Range) => {
        const shown = defaultRangeExtractor(range);
        return focusedPlace < 0 || shown.includes(focusedPlace) ? shown : [...shown, focusedPlace].sort((a, b) => a - b);
      },
      [focusedPlace],
    ),
  });
  useEffect(() => virtual.measure(), [virtual, height]);
  useEffect(() => {
    const place = recallPlace(placeKey);
    if (!place || !scroller.current) return;
    scroller.current.scrollTop = place.scrollTop;
    setFocused(place.runId);
    requestAnimationFrame(() => linkOf(place.runId)?.focus({ preventScroll: true }));
  }, [placeKey]);
  const select = useRangeSelection(rows, selected, onSelect);
  useRowKeys(rows, onSelect === null ? null : select, (index) => virtual.scrollToIndex(index));
  return (
    <div
      ref={scroller}
      className="min-h-0 flex-1 overflow-auto"
      onScroll={(event) => onAtTop(event.currentTarget.scrollTop < headHeight)}
      onFocus={() => setFocused(focusedRow())}
      tabIndex={0}
      role="region"
      aria-label={t.table}
    >
      <div role="table" aria-label={t.table} aria-rowcount={rows.length + 1}>
        <div role="rowgroup" className={isNarrow ? "sr-only" : "sticky top-0 z-20"}>
          <Head isSelectable={onSelect !== null} columns={columns} grid={grid} />
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
                style={{ height, transform: `translateY(${item.start}px)`, ...grid }}
                className={`absolute inset-x-0 border-b border-line hover:bg-panel has-[a:focus-visible]:bg-accent-soft ${selected.has(run.id) ? "bg-accent-soft" : ""} ${isNarrow ? NARROW : WIDE}`}
              >
                <Cells
                  run={run}
                  now={now}
                  isNarrow={isNarrow}
                  columns={columns}
                  isSelected={selected.has(run.id)}
                  onSelect={onSelect === null ? null : (isRange) => select(item.index, isRange)}
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

function linkOf(runId: string): HTMLElement | null {
  return document.getElementById(`run-${runId}`);
}

/** Return the id of the run whose row has the focus. */
function focusedRow(): string | null {
  return document.activeElement?.closest<HTMLElement>("[data-run-id]")?.dataset.runId ?? null;
}

/** Return what selects a row or unselects it; with a range, it selects all rows from the one that was selected last. */
function useRangeSelection(rows: readonly RunRow[], selected: ReadonlySet<string>, onSelect: OnSelect | null): (index: number, isRange: boolean) => void {
  const last = useRef<string | null>(null);
  return (index, isRange) => {
    const run = rows[index];
    if (!run) return;
    const from = isRange ? rows.findIndex((each) => each.id === last.current) : -1;
    last.current = run.id;
    if (from < 0) onSelect?.([run.id], !selected.has(run.id));
    else onSelect?.(rows.slice(Math.min(from, index), Math.max(from, index) + 1).map((each) => each.id), true);
  };
}

/** The keys of rows: j and k move the focus, x and X select. */
function useRowKeys(rows: readonly RunRow[], select: ((index: number, isRange: boolean) => void) | null, scrollTo: (index: number) => void): void {
  const place = (): number => rows.findIndex((run) => run.id === focusedRow());
  const move = (by: number): void => {
    const next = Math.min(rows.length - 1, Math.max(0, place() < 0 ? 0 : place() + by));
    const run = rows[next];
    if (!run) return;
    scrollTo(next);
    const focus = (): void => linkOf(run.id)?.focus({ preventScroll: true });
    if (linkOf(run.id)) focus();
    else requestAnimationFrame(focus);
  };
  const selectFocused = (isRange: boolean): void => {
    if (place() >= 0) select?.(place(), isRange);
  };
  useShortcut("j", t.keys.next, () => move(1));
  useShortcut("k", t.keys.previous, () => move(-1));
  useShortcut("x", t.keys.select, () => selectFocused(false), select !== null);
  useShortcut("X", t.keys.range, () => selectFocused(true), select !== null);
}

function Head({ isSelectable, columns, grid }: { isSelectable: boolean; columns: readonly Column[]; grid: CSSProperties }): ReactNode {
  return (
    <div role="row" aria-rowindex={1} style={grid} className={`${WIDE} h-8 border-b border-line bg-panel text-ink-2`}>
      <span role="columnheader">{isSelectable ? <span className="sr-only">{t.columns.select}</span> : null}</span>
      <span role="columnheader">{t.columns.status}</span>
      <span role="columnheader">{t.columns.agent}</span>
      {columns.map(({ name, isNumeric }) => (
        <span key={name} role="columnheader" className={isNumeric ? "text-right" : ""}>
          {t.columns[name]}
        </span>
      ))}
    </div>
  );
}

interface CellsProps {
  run: RunRow;
  now: number;
  isNarrow: boolean;
  columns: readonly Column[];
  isSelected: boolean;
  onSelect: ((isRange: boolean) => void) | null;
  onOpen: () => void;
}

function Cells({ run, now, isNarrow, columns, isSelected, onSelect, onOpen }: CellsProps): ReactNode {
  const title = visibleName(run.agent_title ?? run.agent_id ?? "–", 120);
  const created = Date.parse(run.created_at);
  const hasWaits = !isNarrow && columns.some(({ name }) => name === "waits");
  const waits = run.status === "waiting" && run.waits && !hasWaits ? t.waits[run.waits] : undefined;
  const look = runLook(run.status);
  const badge = <StateBadge look={waits === undefined ? look : { ...look, icon: run.waits === "budget" ? "¤" : "?", word: waits }} />;
  const box = (
    <span role="cell" className="relative z-10">
      {onSelect ? (
        <input
          type="checkbox"
          className="size-6 align-middle"
          aria-label={`${t.select(title)}, ${moment(created)}`}
          checked={isSelected}
          onChange={({ nativeEvent }) => onSelect(nativeEvent instanceof MouseEvent && nativeEvent.shiftKey)}
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
        <Cell name="query" run={run} now={now} />
        <span role="presentation" className="flex justify-end gap-2">
          <Cell name="started" run={run} now={now} />
          <Cell name="took" run={run} now={now} />
        </span>
      </>
    );
  }
  return (
    <>
      {box}
      <span role="cell" className="min-w-0 overflow-hidden">
        {badge}
      </span>
      {link}
      {columns.map(({ name }) => (
        <Cell key={name} name={name} run={run} now={now} />
      ))}
    </>
  );
}

const CELLS: Readonly<Record<ColumnName, (run: RunRow, now: number) => ReactNode>> = {
  query: (run) => <bdi className={run.error ? "text-red" : "text-ink-2"}>{visibleName(run.error ?? run.query ?? "", 200)}</bdi>,
  waits: (run) => (run.status === "waiting" && run.waits ? (t.waitsFor[run.waits] ?? run.waits) : ""),
  started: (run, now) => <Started created={Date.parse(run.created_at)} now={now} />,
  took: (run, now) => duration(tookOf(run, now)),
  steps: (run) => stepsText(run),
  tokens: (run) => {
    const usage = usageOf(run.usage);
    return count(usage.promptTokens + usage.completionTokens);
  },
  cost: (run) => money(usageOf(run.usage).cost) ?? "–",
  origin: (run) => (run.origin ? <span title={originSentence(String(run.origin.kind))}>{originText(String(run.origin.kind))}</span> : ""),
};
const NUMERIC: ReadonlySet<ColumnName> = new Set(["took", "steps", "tokens", "cost"]);

function Cell({ name, run, now }: { name: ColumnName; run: RunRow; now: number }): ReactNode {
  return (
    <span role="cell" className={`min-w-0 truncate tabular-nums ${NUMERIC.has(name) ? "text-right" : "text-ink-2"}`}>
      {CELLS[name](run, now)}
    </span>
  );
}

function originText(kind: string): string {
  return `${kind === "fork" ? "⑂ " : kind === "rerun" ? "↻ " : ""}${t.origins[kind] ?? visibleName(kind, 20)}`;
}

function originSentence(kind: string): string {
  return texts.run.origins[kind] ?? texts.run.origin(visibleName(kind, 30));
}

function stepsText(run: RunRow): string {
  const { activated = 0, active = 0, queued = 0 } = run.progress ?? {};
  return isOver(run.status) || !(active + queued) ? count(activated) : `${count(Math.max(0, activated - active - queued))}/${count(activated)}`;
}

/** Return the milliseconds that a run has taken so far. */
function tookOf(run: RunRow, now: number): number | null {
  if (run.elapsed_ms !== null) return run.elapsed_ms;
  const began = Date.parse(run.started_at ?? run.created_at);
  return Number.isNaN(began) || !now ? null : Math.max(0, now - began);
}

const DAY_MS = 86_400_000;

/** When a run was accepted: how long ago, or the time, without the date if it was in the last hours. */
function Started({ created, now }: { created: number; now: number }): ReactNode {
  const { times } = useSettings();
  const isRelative = times === "relative" && now > 0;
  const absolute = now - created < DAY_MS / 2 ? clock(created) : minute(created);
  return (
    <time dateTime={new Date(created).toISOString()} title={moment(created)}>
      {isRelative ? age(created, now) : absolute}
    </time>
  );
}
