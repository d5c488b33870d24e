/** Items of a container: what each is as a whole, and the cells of a strip that has fewer places than items. */
import type { RunState } from "./run";
import { entryOf } from "./scopes";

export type ItemState = "failed" | "active" | "closed" | "done";

export interface Item {
  item: number;
  state: ItemState;
  createdAt: number | null;
  endedAt: number | null;
  steps: number;
  tokens: number;
  error: string | null;
}

/** The worst state of a cell is the one that is shown. */
const WORST: readonly ItemState[] = ["failed", "active", "closed", "done"];

/** Return the entry of a container by its step; null if the step has opened none. */
export function entryOfStep(run: Pick<RunState, "steps">, stepId: string): string | null {
  const row = run.steps.rowOf(stepId);
  if (row === null || run.steps.text(row, "outcome") !== "ContainerOpened") return null;
  return entryOf(run.steps.text(row, "scope") ?? "", run.steps.text(row, "nodeId") ?? "", run.steps.number(row, "ordinal") ?? 0);
}

/** Return the number of the item of an entry that a scope lies in; null if it lies elsewhere. */
export function itemIn(entry: string, scope: string): number | null {
  if (!scope.startsWith(entry) || scope[entry.length] !== ".") return null;
  const end = scope.indexOf("/", entry.length);
  return Number(scope.slice(entry.length + 1, end < 0 ? undefined : end));
}

/** Return the items of an entry in order, out of the rows; what collects the results of a container is no item. */
export function itemsOf(run: Pick<RunState, "steps">, entry: string, count: number | null): Item[] {
  const { steps } = run;
  const found = new Map<number, Item>();
  for (let row = 0; row < steps.count; row++) {
    const item = itemIn(entry, steps.text(row, "scope") ?? "");
    if (item === null || (count !== null && item >= count)) continue;
    const known = found.get(item) ?? { item, state: "done" as ItemState, createdAt: null, endedAt: null, steps: 0, tokens: 0, error: null };
    found.set(item, known);
    const status = steps.text(row, "status");
    const hasFailed = status === "done" && steps.text(row, "outcome") === "Failed";
    const state: ItemState = hasFailed ? "failed" : status === "done" ? "done" : status === "closed" ? "closed" : "active";
    known.state = worst(known.state, state);
    known.steps += 1;
    known.tokens += (steps.number(row, "tokensIn") ?? 0) + (steps.number(row, "tokensOut") ?? 0);
    known.createdAt = Math.min(known.createdAt ?? Number.POSITIVE_INFINITY, steps.number(row, "createdAt") ?? Number.POSITIVE_INFINITY);
    known.endedAt = Math.max(known.endedAt ?? 0, steps.number(row, "endedAt") ?? steps.number(row, "finishedAt") ?? 0);
    if (hasFailed) known.error ??= steps.error(row);
  }
  return [...found.values()]
    .map((each) => ({
      ...each,
      createdAt: each.createdAt === Number.POSITIVE_INFINITY ? null : each.createdAt,
      endedAt: each.state === "active" || each.endedAt === 0 ? null : each.endedAt,
    }))
    .sort((a, b) => a.item - b.item);
}

function worst(a: ItemState, b: ItemState): ItemState {
  return WORST.indexOf(a) < WORST.indexOf(b) ? a : b;
}

export function itemMs(item: Item, now: number): number | null {
  return item.createdAt === null ? null : Math.max(0, (item.endedAt ?? now) - item.createdAt);
}

export interface Cell {
  state: ItemState;
  items: readonly Item[];
}

/** Return at most so many cells, each of as many neighbouring items as needed; a cell has the worst state in it. */
export function cellsOf(items: readonly Item[], most: number): Cell[] {
  const size = Math.max(1, Math.ceil(items.length / Math.max(1, most)));
  const cells: Cell[] = [];
  for (let at = 0; at < items.length; at += size) {
    const inside = items.slice(at, at + size);
    cells.push({ state: inside.map((each) => each.state).reduce(worst), items: inside });
  }
  return cells;
}

/** Return how many items are active in each of so many equal parts of a stretch of time, at its most. */
export function density(items: readonly Item[], from: number, to: number, parts: number, now: number): number[] {
  const width = (to - from) / parts;
  const changes = new Array<number>(parts + 1).fill(0);
  for (const item of items) {
    if (item.createdAt === null) continue;
    const first = Math.floor((item.createdAt - from) / width);
    const last = Math.floor(((item.endedAt ?? now) - from) / width);
    if (last < 0 || first >= parts) continue;
    const [begin, end] = [Math.max(0, first), Math.min(parts - 1, last) + 1];
    changes[begin] = (changes[begin] ?? 0) + 1;
    changes[end] = (changes[end] ?? 0) - 1;
  }
  let active = 0;
  return changes.slice(0, parts).map((by) => (active += by));
}

export interface Progress {
  items: number;
  done: number;
}

/** Return how many items of each container node have begun and have ended, of all its entries together. */
export function containerProgress(run: Pick<RunState, "steps">): Map<string, Progress> {
  const { steps } = run;
  const isActive = new Map<string, boolean>();
  const expected = new Map<string, number>();
  const nodeOf = new Map<string, string>();
  for (let row = 0; row < steps.count; row++) {
    const scope = steps.text(row, "scope") ?? "";
    if (steps.text(row, "outcome") === "ContainerOpened") {
      const nodeId = steps.text(row, "nodeId") ?? "";
      const entry = entryOf(scope, nodeId, steps.number(row, "ordinal") ?? 0);
      nodeOf.set(entry, nodeId);
      const count = steps.number(row, "count");
      if (count !== null) expected.set(entry, count);
    }
    const status = steps.text(row, "status");
    const active = status !== "done" && status !== "closed";
    for (let at = scope; at; at = outerScope(at)) isActive.set(at, (isActive.get(at) ?? false) || active);
  }
  const progress = new Map<string, Progress>();
  const add = (nodeId: string, items: number, done: number): void => {
    const known = progress.get(nodeId) ?? { items: 0, done: 0 };
    progress.set(nodeId, { items: known.items + items, done: known.done + done });
  };
  for (const [entry, count] of expected) add(nodeOf.get(entry) ?? "", count, 0);
  for (const [scope, active] of isActive) {
    const dot = scope.lastIndexOf(".");
    const entry = scope.slice(0, dot);
    const nodeId = nodeOf.get(entry);
    const count = expected.get(entry);
    if (nodeId === undefined || (count !== undefined && Number(scope.slice(dot + 1)) >= count)) continue;
    add(nodeId, count === undefined ? 1 : 0, active ? 0 : 1);
  }
  return progress;
}

function outerScope(scope: string): string {
  const slash = scope.lastIndexOf("/");
  return slash < 0 ? "" : scope.slice(0, slash);
}
