/** Time: the steps as a tree grid of which only the rows in view exist, with a time axis on the right. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { scaleLinear } from "d3-scale";
import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type ReactNode, type WheelEvent } from "react";

import { FILTERS, type RunSearch } from "./run-search";
import { NODE_LOOKS, stepState, workOf } from "../store/node-states";
import type { RunState } from "../store/run";
import { SEGMENT_WORDS, segmentsOf, type Segment, type SegmentKind } from "../store/segments";
import { filteredRows, keysAbove, summarizeItem, visibleRows, type StepTree, type TreeRow } from "../store/step-tree";
import { texts } from "../texts";
import { count, duration } from "../ui/format";
import { Button, Empty } from "../ui/parts";
import { useWidth } from "../ui/use-width";
import { visibleName } from "../ui/visible-text";
import { useNodeNames, useRunContext, useRunState, useStepTree } from "./use-run";

const t = texts.time;
const ROW_HEIGHT = 28;
const BAR_HEIGHT = 12;
const MIN_BAR_WIDTH = 2;
const LEGEND: readonly SegmentKind[] = ["queue", "work", "call", "tool", "person", "rate_limit", "open", "lost"];

type Filter = NonNullable<RunSearch["only"]>;
interface Domain {
  from: number;
  to: number;
}

/** The columns by the width of the pane: without the words of states, then without the axis. */
type Columns = "wide" | "compact" | "narrow";

function columnsFor(width: number): Columns {
  return width >= 900 ? "wide" : width >= 560 ? "compact" : "narrow";
}

const GRIDS: Readonly<Record<Columns, string>> = {
  wide: "grid-cols-[minmax(12rem,22rem)_10rem_5rem_4.5rem_minmax(10rem,1fr)]",
  compact: "grid-cols-[minmax(9rem,15rem)_1.75rem_4.5rem_4rem_minmax(10rem,1fr)]",
  narrow: "grid-cols-[minmax(0,1fr)_1.75rem_5rem_4.5rem]",
};

export function StepsPane({ filter, onFilter }: { filter: Filter; onFilter: (filter: Filter) => void }): ReactNode {
  const state = useRunState();
  const tree = useStepTree();
  const whole = useMemo(() => wholeDomain(state), [state]);
  const [zoomed, setZoomed] = useState<Domain | null>(null);
  const pane = useRef<HTMLDivElement>(null);
  const columns = columnsFor(useWidth(pane));
  const domain = zoomed ?? whole;
  if (!state.steps.count) {
    return (
      <div ref={pane} className="flex min-h-0 flex-1 flex-col">
        <Empty>{t.empty}</Empty>
      </div>
    );
  }
  return (
    <div ref={pane} className="flex min-h-0 flex-1 flex-col">
      <div className="flex shrink-0 flex-wrap items-center gap-1 border-b border-line px-2 py-1">
        <div role="group" aria-label={t.filter} className="flex gap-1">
          {FILTERS.map((each) => (
            <Button key={each} aria-pressed={filter === each} onClick={() => onFilter(each)}>
              {t[each]}
            </Button>
          ))}
        </div>
        <span className="flex-1" />
        {columns === "narrow" ? null : <Zoom domain={domain} whole={whole} onZoom={setZoomed} />}
      </div>
      <StepGrid state={state} tree={tree} filter={filter} domain={domain} columns={columns} onZoom={setZoomed} whole={whole} />
      {columns === "narrow" ? null : <Legend />}
    </div>
  );
}

function Zoom({ domain, whole, onZoom }: { domain: Domain; whole: Domain; onZoom: (domain: Domain | null) => void }): ReactNode {
  const isWhole = domain.from === whole.from && domain.to === whole.to;
  return (
    <div className="flex items-center gap-1">
      <Button aria-label={texts.graph.zoomIn} onClick={() => onZoom(zoomedBy(domain, whole, 0.5, 0.5))}>
        +
      </Button>
      <Button aria-label={texts.graph.zoomOut} disabled={isWhole} onClick={() => onZoom(zoomedBy(domain, whole, 2, 0.5))}>
        −
      </Button>
      <Button disabled={isWhole} onClick={() => onZoom(null)}>
        {t.fit}
      </Button>
    </div>
  );
}

interface GridProps {
  state: RunState;
  tree: StepTree;
  filter: Filter;
  domain: Domain;
  whole: Domain;
  columns: Columns;
  onZoom: (domain: Domain | null) => void;
}

function StepGrid({ state, tree, filter, domain, whole, columns, onZoom }: GridProps): ReactNode {
  const { selectedStep, selectStep } = useRunContext();
  const [open, setOpen] = useState<ReadonlySet<string>>(() => new Set());
  const [focused, setFocused] = useState<string | null>(null);
  const scroller = useRef<HTMLDivElement>(null);

  const [revealed, setRevealed] = useState<string | null>(null);
  if (selectedStep !== null && selectedStep !== revealed) {
    setRevealed(selectedStep);
    const row = state.steps.rowOf(selectedStep);
    if (row !== null) {
      setOpen(new Set([...open, ...keysAbove(state, tree, row)]));
      setFocused(`s${selectedStep}`);
    }
  }

  const rows = useMemo(
    () => (filter === "all" ? visibleRows(state, tree, open) : filteredRows(state, filter)),
    [state, tree, open, filter],
  );
  const indexes = useMemo(() => new Map(rows.map((row, index) => [row.key, index])), [rows]);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 12,
    scrollPaddingStart: ROW_HEIGHT,
  });
  const focusedIndex = focused === null ? undefined : indexes.get(focused);

  useEffect(() => {
    const index = selectedStep === null ? undefined : indexes.get(`s${selectedStep}`);
    const top = scroller.current?.scrollTop ?? 0;
    const isInView = index !== undefined && (index + 1) * ROW_HEIGHT > top + ROW_HEIGHT && (index + 2) * ROW_HEIGHT < top + (scroller.current?.clientHeight ?? 0);
    if (index !== undefined && !isInView) virtual.scrollToIndex(index, { align: "center" });
    // Only a new selection scrolls: a reader who has scrolled on must not be pulled back.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [selectedStep, revealed]);

  const toggle = (row: TreeRow, isOpen = !row.isOpen): void => {
    const next = new Set(open);
    if (isOpen) next.add(row.key);
    else next.delete(row.key);
    setOpen(next);
  };
  const focus = (index: number): void => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, index))];
    if (!row) return;
    setFocused(row.key);
    virtual.scrollToIndex(indexes.get(row.key) ?? 0, { align: "auto" });
  };
  const choose = (row: TreeRow): void => {
    setFocused(row.key);
    if (row.kind === "item") toggle(row);
    else selectStep(state.steps.id(row.row));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const index = focusedIndex ?? -1;
    const row = rows[index];
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? ROW_HEIGHT) / ROW_HEIGHT) - 2);
    const actions: Record<string, () => void> = {
      ArrowDown: () => focus(index + 1),
      ArrowUp: () => focus(index - 1),
      PageDown: () => focus(index + page),
      PageUp: () => focus(index - page),
      Home: () => focus(0),
      End: () => focus(rows.length - 1),
      ArrowRight: () => row && (row.isOpen === false ? toggle(row, true) : row.isOpen ? focus(index + 1) : undefined),
      ArrowLeft: () => row && (row.isOpen ? toggle(row, false) : row.parentKey ? focus(indexes.get(row.parentKey) ?? index) : undefined),
      Enter: () => row && choose(row),
    };
    const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  };
  const onWheel = (event: WheelEvent): void => {
    if (!event.ctrlKey || columns === "narrow") return;
    onZoom(zoomedBy(domain, whole, event.deltaY > 0 ? 1.25 : 0.8, 0.5));
  };

  if (!rows.length) return <Empty>{t.none}</Empty>;
  return (
    <div
      ref={scroller}
      role="treegrid"
      aria-label={t.grid}
      aria-rowcount={rows.length + 1}
      aria-activedescendant={focused !== null && isRendered(virtual.getVirtualItems(), focusedIndex) ? `row-${focused}` : undefined}
      tabIndex={0}
      onKeyDown={onKeyDown}
      onWheel={onWheel}
      onFocus={() => {
        if (focusedIndex === undefined) focus(0);
      }}
      className="group min-h-0 flex-1 overflow-auto"
    >
      <Hatches />
      <HeadRow domain={domain} columns={columns} />
      <div role="rowgroup" style={{ height: virtual.getTotalSize(), position: "relative" }}>
        {virtual.getVirtualItems().map((item) => {
          const row = rows[item.index];
          return row ? (
            <Row
              key={row.key}
              row={row}
              index={item.index}
              top={item.start}
              state={state}
              tree={tree}
              domain={domain}
              start={whole.from}
              columns={columns}
              isFocused={row.key === focused}
              isSelected={row.kind === "step" && state.steps.id(row.row) === selectedStep}
              onChoose={() => choose(row)}
              onToggle={() => toggle(row)}
            />
          ) : null;
        })}
      </div>
    </div>
  );
}

function isRendered(items: readonly { index: number }[], index: number | undefined): boolean {
  return items.some((item) => item.index === index);
}

function HeadRow({ domain, columns }: { domain: Domain; columns: Columns }): ReactNode {
  return (
    <div role="rowgroup" className="sticky top-0 z-10">
      <div role="row" aria-rowindex={1} className={`grid ${GRIDS[columns]} h-7 items-center border-b border-line bg-panel px-2 text-ink-2`}>
        <span role="columnheader">{t.name}</span>
        <span role="columnheader">{columns === "wide" ? t.state : <span className="sr-only">{t.state}</span>}</span>
        <span role="columnheader" className="text-right">
          {t.duration}
        </span>
        <span role="columnheader" className="pr-2 text-right">
          {t.tokens}
        </span>
        {columns === "narrow" ? null : (
          <span role="columnheader">
            <span className="sr-only">{t.axis}</span>
            <Axis domain={domain} isShort={columns === "compact"} />
          </span>
        )}
      </div>
    </div>
  );
}

function Axis({ domain, isShort }: { domain: Domain; isShort: boolean }): ReactNode {
  const scale = scaleLinear([domain.from, domain.to], [0, 100]);
  const ticks = scale.ticks(isShort ? 2 : 5).filter((tick) => scale(tick) <= (isShort ? 80 : 94));
  return (
    <span aria-hidden="true" className="relative block h-5 text-[11px]">
      {ticks.map((tick) => (
        <span key={tick} className="absolute border-l border-line-strong pl-0.5 whitespace-nowrap" style={{ left: `${scale(tick)}%` }}>
          {axisTime(tick, domain)}
        </span>
      ))}
    </span>
  );
}

function axisTime(ms: number, domain: Domain): string {
  return domain.to - domain.from < 2000 || ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toLocaleString("en", { maximumFractionDigits: 1 })} s`;
}

interface RowProps {
  row: TreeRow;
  index: number;
  top: number;
  state: RunState;
  tree: StepTree;
  domain: Domain;
  start: number;
  columns: Columns;
  isFocused: boolean;
  isSelected: boolean;
  onChoose: () => void;
  onToggle: () => void;
}

function Row({ row, index, top, state, tree, domain, columns, isFocused, isSelected, onChoose, onToggle }: RowProps): ReactNode {
  const shown = row.kind === "item" ? itemCells(state, tree, row) : stepCells(state, tree, row);
  const names = useNodeNames();
  const look = NODE_LOOKS[shown.state];
  const stepId = state.steps.id(row.row);
  const name = row.kind === "item" ? t.item(row.item ?? 0) : (names.get(shown.nodeId) ?? shown.nodeId);
  return (
    <div
      id={`row-${row.key}`}
      role="row"
      data-testid="step-row"
      data-kind={row.kind === "item" ? "item" : row.isOpen === null ? "step" : "container"}
      {...(row.kind === "step" ? { "data-activation": stepId, "data-segments": JSON.stringify(shown.segments.map((each) => [each.kind, each.from, each.to])) } : {})}
      aria-level={row.level}
      aria-posinset={row.position}
      aria-setsize={row.siblings}
      aria-rowindex={index + 2}
      aria-selected={isSelected}
      {...(row.isOpen === null ? {} : { "aria-expanded": row.isOpen })}
      onClick={onChoose}
      className={`grid ${GRIDS[columns]} absolute inset-x-0 cursor-pointer items-center border-b border-line px-2 hover:bg-raised aria-selected:bg-accent-soft ${isFocused ? "group-focus-visible:outline-2 group-focus-visible:-outline-offset-2 group-focus-visible:outline-(--focus)" : ""}`}
      style={{ height: ROW_HEIGHT, transform: `translateY(${top}px)` }}
    >
      <span role="gridcell" className="flex min-w-0 items-center gap-1" style={{ paddingLeft: (row.level - 1) * 14 }}>
        {row.isOpen === null ? (
          <span className="w-5 shrink-0" />
        ) : (
          <span
            aria-hidden="true"
            className="w-5 shrink-0 rounded text-center text-ink-2 hover:bg-panel"
            onClick={(event) => {
              event.stopPropagation();
              onToggle();
            }}
          >
            {row.isOpen ? "▾" : "▸"}
          </span>
        )}
        <bdi className="truncate">{visibleName(name, 120)}</bdi>
        {row.kind === "step" && shown.items !== null ? <span className="shrink-0 text-ink-2">{t.items(shown.items)}</span> : null}
      </span>
      <span role="gridcell" data-tone={look.tone} className="flex min-w-0 gap-1 truncate text-tone" title={look.word}>
        <span aria-hidden="true" className="w-5 shrink-0 text-center">
          {look.icon}
        </span>
        <span className={columns === "wide" ? "truncate" : "sr-only"}>{look.word}</span>
      </span>
      <span role="gridcell" className="text-right tabular-nums">
        {duration(shown.ms)}
      </span>
      <span role="gridcell" className="pr-2 text-right tabular-nums">
        {shown.tokens ? count(shown.tokens) : ""}
      </span>
      {columns === "narrow" ? null : (
        <span role="gridcell" className="h-full min-w-0 overflow-hidden">
          <Bars segments={shown.segments} domain={domain} hasFailed={shown.state === "failed"} />
        </span>
      )}
    </div>
  );
}

interface Cells {
  nodeId: string;
  state: ReturnType<typeof stepState>;
  ms: number | null;
  tokens: number;
  items: number | null;
  segments: Segment[];
}

function stepCells(state: RunState, tree: StepTree, row: TreeRow): Cells {
  const step = state.steps.step(row.row);
  const start = runStart(state);
  const segments = segmentsOf(step, state.attempts.get(step.id) ?? [], state.modelCalls.get(step.id) ?? [], state.toolCalls.get(step.id) ?? [], start, state.now);
  return {
    nodeId: step.nodeId,
    state: stepState(state, row.row),
    ms: step.startedAt === null ? null : workOf(state.steps, row.row, state.now),
    tokens: (step.tokensIn ?? 0) + (step.tokensOut ?? 0),
    items: row.isOpen === null ? null : (step.count ?? itemsOf(tree, row, step.nodeId, step.ordinal)),
    segments,
  };
}

function itemsOf(tree: StepTree, row: TreeRow, nodeId: string, ordinal: number): number {
  const suffix = `${nodeId}#${ordinal}`;
  return tree.items.get(row.scope ? `${row.scope}/${suffix}` : suffix)?.length ?? 0;
}

function itemCells(state: RunState, tree: StepTree, row: TreeRow): Cells {
  const item = summarizeItem(state, tree, row.scope);
  const start = runStart(state);
  const end = item.endedAt ?? state.now;
  const segments: Segment[] = item.startedAt === null ? [] : [{ kind: "open", from: item.startedAt - start, to: end - start, label: SEGMENT_WORDS.open }];
  return { nodeId: "", state: item.state, ms: item.startedAt === null ? null : end - item.startedAt, tokens: item.tokens, items: item.steps, segments };
}

function Bars({ segments, domain, hasFailed }: { segments: readonly Segment[]; domain: Domain; hasFailed: boolean }): ReactNode {
  const scale = scaleLinear([domain.from, domain.to], [0, 100]);
  const title = segments.map((each) => `${visibleName(each.label, 120)} ${duration(each.to - each.from)}`).join(", ");
  return (
    <>
      <span className="sr-only">{title}</span>
      <svg aria-hidden="true" width="100%" height={ROW_HEIGHT} className="block">
        <title>{title}</title>
        {segments.map((each, index) => {
          const isThin = each.kind === "open" || each.kind === "stream_wait";
          const isCall = each.kind === "call" || each.kind === "tool";
          const height = isThin || isCall ? BAR_HEIGHT / 2 : BAR_HEIGHT;
          const width = scale(each.to) - scale(each.from);
          return (
            <rect
              key={index}
              className={`segment segment-${each.kind}`}
              {...(hasFailed && each.kind === "work" ? { "data-failed": "" } : {})}
              x={`${scale(each.from)}%`}
              y={(ROW_HEIGHT - height) / 2}
              width={`max(${MIN_BAR_WIDTH}px, ${width}%)`}
              style={{ width: `max(${MIN_BAR_WIDTH}px, ${width}%)` }}
              height={height}
              rx={1}
            />
          );
        })}
      </svg>
    </>
  );
}

function Hatches(): ReactNode {
  return (
    <svg aria-hidden="true" width="0" height="0" className="absolute">
      <defs>
        <pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <line x1="0" y1="0" x2="0" y2="5" stroke="var(--neutral)" strokeWidth="1.5" />
        </pattern>
        <pattern id="cross-hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <path d="M0 0V5M0 0H5" stroke="var(--amber)" strokeWidth="1.5" />
        </pattern>
        <pattern id="stripes" width="4" height="4" patternUnits="userSpaceOnUse">
          <line x1="1" y1="0" x2="1" y2="4" stroke="var(--ink)" strokeWidth="2" />
        </pattern>
      </defs>
    </svg>
  );
}

function Legend(): ReactNode {
  return (
    <ul aria-label={t.legend} className="flex shrink-0 flex-wrap gap-x-4 border-t border-line px-2 py-1 text-xs text-ink-2">
      {LEGEND.map((kind) => (
        <li key={kind} className="flex items-center gap-1">
          <svg aria-hidden="true" width="18" height="10">
            <rect className={`segment segment-${kind}`} x="1" y="1" width="16" height="8" rx="1" />
          </svg>
          {SEGMENT_WORDS[kind]}
        </li>
      ))}
    </ul>
  );
}

function runStart(state: RunState): number {
  return state.header?.startedAt ?? state.header?.createdAt ?? 0;
}

function wholeDomain(state: RunState): Domain {
  const start = runStart(state);
  let last = state.header?.finishedAt ?? state.now;
  for (let row = 0; row < state.steps.count; row++) last = Math.max(last, state.steps.number(row, "finishedAt") ?? 0);
  return { from: 0, to: Math.max(1, last - start) };
}

/** Return a part of the run that is so many times as long, around a point between 0 and 1. */
function zoomedBy(domain: Domain, whole: Domain, factor: number, point: number): Domain | null {
  const length = (domain.to - domain.from) * factor;
  if (length >= whole.to - whole.from) return null;
  const centre = domain.from + (domain.to - domain.from) * point;
  const from = Math.max(whole.from, Math.min(whole.to - length, centre - length * point));
  return { from, to: from + Math.max(0.5, length) };
}
