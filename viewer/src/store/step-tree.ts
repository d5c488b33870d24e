/** Steps as a tree: containers hold items, items hold steps. Only the rows that are open are listed. */
import { stepState, workOf, type StepState } from "./node-states";
import type { RunState } from "./run";
import { entryOf, splitScope } from "./scopes";

export interface StepTree {
  /** Rows of the table of steps by scope, in canonical order. */
  steps: ReadonlyMap<string, readonly number[]>;
  /** Numbers of the items by the container's entry, in order. */
  items: ReadonlyMap<string, readonly number[]>;
}

export interface TreeRow {
  /** `s` and the step's id, `i` and the scope of the item, or the key of the step and what is listed below it. */
  key: string;
  kind: "step" | "item" | "attempt" | "call" | "tool";
  /** The row in the table of steps; for an item, that of its first step. */
  row: number;
  /** Of an attempt or call, its place in the list of its step. */
  detail: number;
  level: number;
  position: number;
  siblings: number;
  scope: string;
  item: number | null;
  /** The entry of the container that a step has opened. */
  entry: string | null;
  isOpen: boolean | null;
  parentKey: string | null;
}

export type StepFilter = "all" | "active" | "failed" | "retried" | "slow";
export type StepOrder = "canonical" | "start" | "duration" | "cost";

const ACTIVE: readonly StepState[] = [
  "queued", "ready", "delayed", "running", "unresponsive", "needs_input", "over_budget", "streaming", "open",
];
const SLOW = 0.95; // a slow step took longer than this part of all steps

export function buildTree(run: Pick<RunState, "steps">): StepTree {
  const steps = new Map<string, number[]>();
  for (const row of run.steps.inOrder()) {
    const scope = run.steps.text(row, "scope") ?? "";
    const known = steps.get(scope);
    if (known) known.push(row);
    else steps.set(scope, [row]);
  }
  const items = new Map<string, Set<number>>();
  for (const scope of steps.keys()) {
    for (let at = splitScope(scope); at; at = splitScope(parentOf(at.entry))) {
      const known = items.get(at.entry) ?? new Set();
      items.set(at.entry, known.add(at.item));
    }
  }
  return { steps, items: new Map([...items].map(([entry, found]) => [entry, [...found].sort((a, b) => a - b)])) };
}

function parentOf(entry: string): string {
  const slash = entry.lastIndexOf("/");
  return slash < 0 ? "" : entry.slice(0, slash);
}

/** Steps that a filter selects, and the containers and items that they lie in. */
export interface Selection {
  rows: ReadonlySet<number>;
  scopes: ReadonlySet<string>;
  /** How many steps are selected, without the containers. */
  count: number;
}

export interface TreeOptions {
  order?: StepOrder;
  /** What is listed; everything in it is open but what is in `closed`. */
  selection?: Selection | null;
  closed?: ReadonlySet<string>;
}

/** Return the rows of a tree of which these are open, by key. */
export function visibleRows(run: RunState, tree: StepTree, open: ReadonlySet<string>, options: TreeOptions = {}): TreeRow[] {
  const { order = "canonical", selection = null, closed = NONE } = options;
  const found: TreeRow[] = [];
  const isOpenKey = (key: string, isBelowSelected: boolean): boolean => (selection && isBelowSelected ? !closed.has(key) : open.has(key));
  const addScope = (scope: string, level: number, parentKey: string | null): void => {
    const all = tree.steps.get(scope) ?? [];
    const rows = inOrder(run, selection ? all.filter((row) => selection.rows.has(row)) : all, order);
    rows.forEach((row, index) => {
      const id = run.steps.id(row);
      const key = `s${id}`;
      const opened = entryOf(scope, run.steps.text(row, "nodeId") ?? "", run.steps.number(row, "ordinal") ?? 0);
      const entry = run.steps.text(row, "outcome") === "ContainerOpened" || tree.items.has(opened) ? opened : null;
      const items = (entry !== null && tree.items.get(entry)) || [];
      const shown = selection ? items.filter((item) => selection.scopes.has(`${entry}.${item}`)) : items;
      const details = detailsOf(run, id);
      const isOpen = shown.length || details.length ? isOpenKey(key, shown.length > 0) : null;
      found.push({ key, kind: "step", row, detail: 0, level, position: index + 1, siblings: rows.length, scope, item: null, entry, isOpen, parentKey });
      if (!isOpen) return;
      details.forEach(({ kind, detail }, place) => {
        const below = { row, detail, level: level + 1, position: place + 1, siblings: details.length + shown.length };
        found.push({ key: `${key} ${kind} ${detail}`, kind, ...below, scope, item: null, entry: null, isOpen: null, parentKey: key });
      });
      if (entry !== null) addItems(entry, shown, level + 1, key, details.length);
    });
  };
  const addItems = (entry: string, items: readonly number[], level: number, parentKey: string, before: number): void => {
    itemsInOrder(run, tree, entry, items, order).forEach((item, index) => {
      const scope = `${entry}.${item}`;
      const key = `i${scope}`;
      const isOpen = isOpenKey(key, true);
      const row = tree.steps.get(scope)?.[0] ?? 0;
      found.push({
        key, kind: "item", row, detail: 0, level, position: before + index + 1, siblings: before + items.length, scope, item, entry: null, isOpen, parentKey,
      });
      if (isOpen) addScope(scope, level + 1, key);
    });
  };
  addScope("", 1, null);
  return found;
}

const NONE: ReadonlySet<string> = new Set();

interface Detail {
  kind: "attempt" | "call" | "tool";
  detail: number;
}

const NO_DETAILS: readonly Detail[] = [];

/** Return what is listed below a step: its attempts if there are several, its calls of models and tools. */
function detailsOf(run: RunState, stepId: string): readonly Detail[] {
  if (!run.attempts.has(stepId) && !run.modelCalls.has(stepId) && !run.toolCalls.has(stepId)) return NO_DETAILS;
  const list = (kind: Detail["kind"], count: number): Detail[] => Array.from({ length: count }, (_, detail) => ({ kind, detail }));
  const earlier = run.attempts.get(stepId)?.length ?? 0;
  return [
    ...list("attempt", earlier ? earlier + 1 : 0),
    ...list("call", run.modelCalls.get(stepId)?.length ?? 0),
    ...list("tool", run.toolCalls.get(stepId)?.length ?? 0),
  ];
}

function inOrder(run: RunState, rows: readonly number[], order: StepOrder): readonly number[] {
  if (order === "canonical") return rows;
  const measures = new Map(rows.map((row) => [row, measureOf(run, row, order)]));
  return rows.toSorted((a, b) => (measures.get(a) ?? 0) - (measures.get(b) ?? 0));
}

function itemsInOrder(run: RunState, tree: StepTree, entry: string, items: readonly number[], order: StepOrder): readonly number[] {
  if (order === "canonical") return items;
  const measures = new Map(
    items.map((item) => {
      const scope = `${entry}.${item}`;
      if (order === "cost") return [item, (tree.steps.get(scope) ?? []).reduce((sum, row) => sum + measureOf(run, row, order), 0)];
      const { startedAt, endedAt } = summarizeItem(run, tree, scope);
      return [item, order === "start" ? (startedAt ?? 0) : (startedAt ?? 0) - (endedAt ?? run.now)];
    }),
  );
  return items.toSorted((a, b) => (measures.get(a) ?? 0) - (measures.get(b) ?? 0));
}

/** Return what rows are ordered by, the least first: the longest and the most expensive have the least. */
function measureOf(run: RunState, row: number, order: StepOrder): number {
  if (order === "start") return run.steps.number(row, "startedAt") ?? run.steps.number(row, "createdAt") ?? 0;
  return order === "duration" ? -workOf(run.steps, row, run.now) : -costOf(run.steps.text(row, "cost"));
}

/** Return the first amount of a cost such as "0.01 USD"; amounts of different currencies cannot be compared. */
export function costOf(cost: string | null): number {
  return Number.parseFloat(cost ?? "") || 0;
}

/** Return the steps that a filter and a text select, with everything that they lie in; null if that is all steps. */
export function selectSteps(run: RunState, tree: StepTree, filter: StepFilter, text: string, names: ReadonlyMap<string, string>): Selection | null {
  const wanted = text.trim().toLowerCase();
  if (filter === "all" && !wanted) return null;
  const slow = filter === "slow" ? slowMs(run) : 0;
  const rows = new Set<number>();
  const scopes = new Set<string>();
  let count = 0;
  for (let row = 0; row < run.steps.count; row++) {
    if (!isSelected(run, row, filter, slow) || !(wanted === "" || hasText(run, row, wanted, names))) continue;
    count += 1;
    rows.add(row);
    addAbove(run, tree, row, rows, scopes);
  }
  return { rows, scopes, count };
}

function addAbove(run: RunState, tree: StepTree, row: number, rows: Set<number>, scopes: Set<string>): void {
  let scope = run.steps.text(row, "scope") ?? "";
  for (let at = splitScope(scope); at && !scopes.has(scope); at = splitScope(scope)) {
    scopes.add(scope);
    scope = parentOf(at.entry);
    const container = containerOf(run, tree, at.entry);
    if (container !== undefined) rows.add(container);
  }
}

/** Return the row of the step that has opened a container. */
function containerOf(run: Pick<RunState, "steps">, tree: StepTree, entry: string): number | undefined {
  const scope = parentOf(entry);
  return (tree.steps.get(scope) ?? []).find(
    (each) => entryOf(scope, run.steps.text(each, "nodeId") ?? "", run.steps.number(each, "ordinal") ?? 0) === entry,
  );
}

/** Return how long the quickest of the slow steps took; containers are as slow as what lies in them. */
function slowMs(run: RunState): number {
  const times: number[] = [];
  for (let row = 0; row < run.steps.count; row++) {
    if (run.steps.number(row, "startedAt") !== null && run.steps.text(row, "outcome") !== "ContainerOpened") times.push(workOf(run.steps, row, run.now));
  }
  times.sort((a, b) => a - b);
  return times[Math.floor(SLOW * times.length)] ?? 0;
}

function hasText(run: RunState, row: number, wanted: string, names: ReadonlyMap<string, string>): boolean {
  const { steps } = run;
  const nodeId = steps.text(row, "nodeId") ?? "";
  return [nodeId, names.get(nodeId), steps.text(row, "component"), steps.error(row), steps.id(row)].some((text) => text?.toLowerCase().includes(wanted));
}

function isSelected(run: RunState, row: number, filter: StepFilter, slow: number): boolean {
  switch (filter) {
    case "all":
      return true;
    case "active":
      return ACTIVE.includes(stepState(run, row));
    case "failed":
      return run.steps.text(row, "outcome") === "Failed";
    case "retried":
      return (run.steps.number(row, "attempt") ?? 0) > 1 || (run.steps.number(row, "crashCount") ?? 0) > 0;
    case "slow":
      return run.steps.text(row, "outcome") !== "ContainerOpened" && run.steps.number(row, "startedAt") !== null && workOf(run.steps, row, run.now) >= slow;
  }
}

/** Return the keys that must be open for a step to be listed. */
export function keysAbove(run: Pick<RunState, "steps">, tree: StepTree, row: number): string[] {
  const keys: string[] = [];
  let scope = run.steps.text(row, "scope") ?? "";
  for (let at = splitScope(scope); at; at = splitScope(scope)) {
    keys.push(`i${scope}`);
    scope = parentOf(at.entry);
    const container = containerOf(run, tree, at.entry);
    if (container !== undefined) keys.push(`s${run.steps.id(container)}`);
  }
  return keys;
}

/** What an item is as a whole: its worst state, when it started and ended, its steps. */
export interface ItemSummary {
  state: StepState;
  startedAt: number | null;
  endedAt: number | null;
  steps: number;
  tokens: number;
}

const WORST: readonly StepState[] = ["failed", "unresponsive", "needs_input", "over_budget", "running", "streaming", "open", "delayed", "ready", "queued", "handled", "done", "closed"];

export function summarizeItem(run: RunState, tree: StepTree, scope: string): ItemSummary {
  const rows = tree.steps.get(scope) ?? [];
  const states = new Set(rows.map((row) => stepState(run, row)));
  const times = (name: "createdAt" | "finishedAt"): number[] =>
    rows.map((row) => run.steps.number(row, name)).filter((time) => time !== null);
  const started = times("createdAt");
  const ended = times("finishedAt");
  return {
    state: WORST.find((state) => states.has(state)) ?? "done",
    startedAt: started.length ? Math.min(...started) : null,
    endedAt: ended.length === rows.length && ended.length ? Math.max(...ended) : null,
    steps: rows.length,
    tokens: rows.reduce((sum, row) => sum + (run.steps.number(row, "tokensIn") ?? 0) + (run.steps.number(row, "tokensOut") ?? 0), 0),
  };
}
