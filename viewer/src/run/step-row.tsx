/** A row of Time: a step, an item, an attempt or a call, with its figures and its bar. */
import { memo, useMemo, type ReactNode } from "react";

import { NODE_LOOKS, stepState, workOf, type NodeState } from "../store/node-states";
import type { Attempt, ModelCall, RunState, ToolCall } from "../store/run";
import { density, itemsOf } from "../store/items";
import { SEGMENT_WORDS, segmentsOf, type Segment, type SegmentKind } from "../store/segments";
import { summarizeItem, type StepTree, type TreeRow } from "../store/step-tree";
import { texts } from "../texts";
import { count, duration, money } from "../ui/format";
import { visibleName } from "../ui/visible-text";
import { Bars, ROW_HEIGHT, segmentText, type Domain } from "./bars";
import { DensityBand } from "./time-axis";
import { runStart } from "./time-domain";
import { useNodeNames } from "./use-run";

const t = texts.time;
const DENSITY_PARTS = 120;

/** The columns by the width of the pane: without cost and the words of states, then without the axis. */
export type Columns = "wide" | "compact" | "narrow";

export const GRIDS: Readonly<Record<Columns, string>> = {
  wide: "grid-cols-[var(--name-width,minmax(12rem,20rem))_9rem_5rem_4.5rem_6rem_minmax(10rem,1fr)]",
  compact: "grid-cols-[var(--name-width,minmax(9rem,15rem))_1.75rem_4.5rem_4rem_minmax(10rem,1fr)]",
  narrow: "grid-cols-[minmax(0,1fr)_1.75rem_5rem_4.5rem]",
};

interface Props {
  row: TreeRow;
  index: number;
  top: number;
  state: RunState;
  tree: StepTree;
  domain: Domain;
  columns: Columns;
  isFocused: boolean;
  isSelected: boolean;
  isCritical: boolean;
  /** The place of the segment that the tooltip names. */
  named: number | null;
  highlighted: ReadonlySet<SegmentKind> | null;
  /** The latest ones, in an object that stays the same, so that a row which has not changed is not rendered again. */
  handlers: { readonly current: RowHandlers };
}

export interface RowHandlers {
  choose: (row: TreeRow) => void;
  toggle: (row: TreeRow) => void;
  openItems: (row: TreeRow) => void;
}

export const StepRow = memo(function StepRow(props: Props): ReactNode {
  const { row, index, top, state, tree, domain, columns, isFocused, isSelected, isCritical, named, highlighted, handlers } = props;
  const names = useNodeNames();
  const shown = cellsOf(state, tree, row);
  const look = NODE_LOOKS[shown.state];
  const name = row.kind === "item" ? t.item(row.item ?? 0) : (shown.name ?? names.get(shown.nodeId) ?? shown.nodeId);
  const isStep = row.kind === "step";
  return (
    <div
      id={`row-${row.key}`}
      role="row"
      data-testid="step-row"
      data-kind={isStep && row.entry !== null ? "container" : row.kind}
      {...(isStep ? { "data-activation": state.steps.id(row.row) } : {})}
      data-segments={JSON.stringify(shown.segments.map((each) => [each.kind, each.from, each.to]))}
      aria-level={row.level}
      aria-posinset={row.position}
      aria-setsize={row.siblings}
      aria-rowindex={index + 2}
      aria-selected={isSelected}
      {...(row.isOpen === null ? {} : { "aria-expanded": row.isOpen })}
      onClick={() => handlers.current.choose(row)}
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
              handlers.current.toggle(row);
            }}
          >
            {row.isOpen ? "▾" : "▸"}
          </span>
        )}
        <bdi className={`truncate ${isStep || row.kind === "item" ? "" : "text-ink-2"}`}>{visibleName(name, 120)}</bdi>
        {isCritical ? (
          <span title={t.onPath} className="shrink-0 text-accent">
            <span aria-hidden="true">◆</span>
            <span className="sr-only">{t.onPath}</span>
          </span>
        ) : null}
        {shown.items === null ? null : isStep ? (
          <button
            type="button"
            tabIndex={-1}
            title={texts.items.open}
            className="min-h-6 shrink-0 text-accent underline"
            onClick={(event) => {
              event.stopPropagation();
              handlers.current.openItems(row);
            }}
          >
            {t.items(shown.items)}
          </button>
        ) : (
          <span className="shrink-0 text-ink-2">{texts.run.steps(shown.items)}</span>
        )}
      </span>
      <span role="gridcell" data-tone={look.tone} className="flex min-w-0 gap-1 truncate text-tone" title={shown.word ?? look.word}>
        <span aria-hidden="true" className="w-5 shrink-0 text-center">
          {look.icon}
        </span>
        <span className={columns === "wide" ? "truncate" : "sr-only"}>{visibleName(shown.word ?? look.word, 60)}</span>
      </span>
      <span role="gridcell" className="text-right tabular-nums">
        {duration(shown.ms)}
        {columns === "narrow" ? <span className="sr-only">{shown.segments.map(segmentText).join("; ")}</span> : null}
      </span>
      <span role="gridcell" className="pr-2 text-right tabular-nums">
        {shown.tokens ? count(shown.tokens) : ""}
      </span>
      {columns === "wide" ? (
        <span role="gridcell" className="truncate pr-2 text-right tabular-nums">
          {shown.cost ?? ""}
        </span>
      ) : null}
      {columns === "narrow" ? null : (
        <span role="gridcell" data-bars="" className="relative h-full min-w-0 overflow-hidden">
          <span className="sr-only">{shown.segments.map(segmentText).join("; ")}</span>
          {row.entry !== null && !row.isOpen && shown.items ? (
            <ContainerBand state={state} entry={row.entry} steps={state.steps.number(row.row, "count")} domain={domain} />
          ) : null}
          <Bars segments={shown.segments} domain={domain} hasFailed={shown.state === "failed"} named={named} highlighted={highlighted} />
        </span>
      )}
    </div>
  );
});

/** How many items of a closed container were active over time. */
function ContainerBand({ state, entry, steps, domain }: { state: RunState; entry: string; steps: number | null; domain: Domain }): ReactNode {
  const items = useMemo(() => itemsOf(state, entry, steps), [state, entry, steps]);
  const start = runStart(state);
  const { from, to } = domain;
  const shown = useMemo(() => density(items, start + from, start + to, DENSITY_PARTS, state.now), [items, start, from, to, state.now]);
  return (
    <span data-testid="density">
      <DensityBand density={shown} height={ROW_HEIGHT} />
    </span>
  );
}

interface Cells {
  nodeId: string;
  /** In place of the node's name. */
  name?: string;
  /** In place of the word of the state. */
  word?: string;
  state: NodeState;
  ms: number | null;
  tokens: number;
  cost: string | null;
  /** Items of a container, steps of an item. */
  items: number | null;
  segments: Segment[];
}

/** Return the segments of a row, for the tooltip and the keys that walk through them. */
export function rowSegments(state: RunState, tree: StepTree, row: TreeRow): Segment[] {
  return cellsOf(state, tree, row).segments;
}

function cellsOf(state: RunState, tree: StepTree, row: TreeRow): Cells {
  if (row.kind === "item") return itemCells(state, tree, row);
  if (row.kind === "step") return stepCells(state, tree, row);
  const id = state.steps.id(row.row);
  if (row.kind === "attempt") return attemptCells(state, row);
  const call = row.kind === "call" ? state.modelCalls.get(id)?.[row.detail] : undefined;
  if (call) return modelCells(state, call);
  const tool = row.kind === "tool" ? state.toolCalls.get(id)?.[row.detail] : undefined;
  return tool ? toolCells(state, tool) : EMPTY;
}

const EMPTY: Cells = { nodeId: "", name: "", state: "pending", ms: null, tokens: 0, cost: null, items: null, segments: [] };

function stepCells(state: RunState, tree: StepTree, row: TreeRow): Cells {
  const step = state.steps.step(row.row);
  const calls = state.modelCalls.get(step.id) ?? [];
  const segments = segmentsOf(step, state.attempts.get(step.id) ?? [], calls, state.toolCalls.get(step.id) ?? [], runStart(state), state.now);
  return {
    nodeId: step.nodeId,
    state: stepState(state, row.row),
    ms: step.startedAt === null ? null : workOf(state.steps, row.row, state.now),
    tokens: (step.tokensIn ?? 0) + (step.tokensOut ?? 0),
    cost: step.cost,
    items: row.entry === null ? null : (step.count ?? tree.items.get(row.entry)?.length ?? 0),
    segments,
  };
}

function itemCells(state: RunState, tree: StepTree, row: TreeRow): Cells {
  const item = summarizeItem(state, tree, row.scope);
  const start = runStart(state);
  const end = item.endedAt ?? state.now;
  const segments: Segment[] = item.startedAt === null ? [] : [{ kind: "open", from: item.startedAt - start, to: end - start, label: SEGMENT_WORDS.open }];
  return { nodeId: "", state: item.state, ms: item.startedAt === null ? null : end - item.startedAt, tokens: item.tokens, cost: null, items: item.steps, segments };
}

function attemptCells(state: RunState, row: TreeRow): Cells {
  const step = state.steps.step(row.row);
  const earlier = (state.attempts.get(step.id) ?? []).toSorted((a, b) => a.attempt - b.attempt);
  const start = runStart(state);
  const attempt = earlier[row.detail];
  if (!attempt) {
    const current = { ...step, createdAt: earlier.at(-1)?.nextAttemptAt ?? step.notBefore ?? step.startedAt };
    const segments = segmentsOf(current, [], [], [], start, state.now);
    const ms = step.startedAt === null ? null : workOf(state.steps, row.row, state.now);
    return { ...EMPTY, name: t.attempt(step.attempt), state: stepState(state, row.row), ms, segments };
  }
  return { ...EMPTY, name: t.attempt(attempt.attempt), word: endOf(attempt), state: stateOfAttempt(attempt), ms: between(attempt.startedAt, attempt.endedAt), tokens: attempt.tokens ?? 0, segments: attemptSegments(attempt, start) };
}

function endOf(attempt: Attempt): string {
  return (attempt.endReason ?? "").replaceAll("_", " ");
}

function stateOfAttempt({ endReason, error }: Attempt): NodeState {
  if (endReason === "worker_lost") return "unresponsive";
  if (endReason === "waited_for_input") return "needs_input";
  return endReason === "over_budget" ? "over_budget" : error === null ? "delayed" : "failed";
}

function attemptSegments(attempt: Attempt, start: number): Segment[] {
  const segments: Segment[] = [];
  const { readyAt, startedAt, endedAt } = attempt;
  if (readyAt !== null && startedAt !== null) segments.push({ kind: "queue", from: readyAt - start, to: startedAt - start, label: SEGMENT_WORDS.queue });
  const kind = attempt.endReason === "worker_lost" ? "lost" : "work";
  const label = attempt.endReason === "worker_lost" && attempt.worker ? `${SEGMENT_WORDS.lost} (${attempt.worker})` : SEGMENT_WORDS[kind];
  if (startedAt !== null && endedAt !== null) segments.push({ kind, from: startedAt - start, to: endedAt - start, label });
  return segments;
}

function modelCells(state: RunState, call: ModelCall): Cells {
  const start = runStart(state);
  const end = call.endedAt ?? state.now;
  const segments: Segment[] = [];
  if (call.startedAt !== null && call.waitedMs > 0) {
    const label = `waited for the rate limit of ${call.account ?? call.model}`;
    segments.push({ kind: "rate_limit", from: call.startedAt - call.waitedMs - start, to: call.startedAt - start, label });
  }
  if (call.startedAt !== null) {
    const firstToken = call.firstTokenAt === null ? {} : { firstToken: call.firstTokenAt - start };
    segments.push({ kind: "call", from: call.startedAt - start, to: end - start, label: `called ${call.model}`, ...firstToken });
  }
  const isOver = call.endedAt !== null;
  return {
    ...EMPTY,
    name: [call.model, call.round].filter(Boolean).join(" · "),
    word: call.status,
    state: !isOver ? "running" : call.status === "ok" ? "done" : "failed",
    ms: call.startedAt === null ? null : end - call.startedAt,
    tokens: (call.tokensIn ?? 0) + (call.tokensOut ?? 0),
    cost: money(call.cost),
    segments,
  };
}

function toolCells(state: RunState, call: ToolCall): Cells {
  const start = runStart(state);
  const from = call.startedAt === null ? null : call.startedAt - start;
  const segments: Segment[] = from === null || call.elapsedMs === null ? [] : [{ kind: "tool", from, to: from + call.elapsedMs, label: `called ${call.toolName}` }];
  const word = call.replayed ? { word: texts.inspector.replayed } : {};
  return { ...EMPTY, name: call.toolName, state: call.failed ? "failed" : "done", ms: call.elapsedMs, segments, ...word };
}

function between(from: number | null, to: number | null): number | null {
  return from === null || to === null ? null : to - from;
}
