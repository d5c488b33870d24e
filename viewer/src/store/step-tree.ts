/** Steps as a tree: containers hold items, items hold steps. Only the rows that are open are listed. */
import { stepState, type StepState } from "./node-states";
import type { RunState } from "./run";
import { entryOf, splitScope } from "./scopes";

export interface StepTree {
  /** Rows of the table of steps by scope, in canonical order. */
  steps: ReadonlyMap<string, readonly number[]>;
  /** Numbers of the items by the container's entry, in order. */
  items: ReadonlyMap<string, readonly number[]>;
}

export interface TreeRow {
  /** `s` and the step's id, or `i` and the scope of the item. */
  key: string;
  kind: "step" | "item";
  /** The row in the table of steps; for an item, that of its first step. */
  row: number;
  level: number;
  position: number;
  siblings: number;
  scope: string;
  item: number | null;
  isOpen: boolean | null;
  parentKey: string | null;
}

export type StepFilter = "all" | "active" | "failed" | "retried";

const ACTIVE: readonly StepState[] = [
  "queued", "ready", "delayed", "running", "unresponsive", "needs_input", "over_budget", "streaming", "open",
];

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

/** Return the rows of a tree of which these are open, by key. */
export function visibleRows(run: Pick<RunState, "steps">, tree: StepTree, open: ReadonlySet<string>): TreeRow[] {
  const found: TreeRow[] = [];
  const addScope = (scope: string, level: number, parentKey: string | null): void => {
    const rows = tree.steps.get(scope) ?? [];
    rows.forEach((row, index) => {
      const key = `s${run.steps.id(row)}`;
      const entry = entryOf(scope, run.steps.text(row, "nodeId") ?? "", run.steps.number(row, "ordinal") ?? 0);
      const items = tree.items.get(entry);
      const isOpen = items ? open.has(key) : null;
      found.push({ key, kind: "step", row, level, position: index + 1, siblings: rows.length, scope, item: null, isOpen, parentKey });
      if (isOpen && items) addItems(entry, items, level + 1, key);
    });
  };
  const addItems = (entry: string, items: readonly number[], level: number, parentKey: string): void => {
    items.forEach((item, index) => {
      const scope = `${entry}.${item}`;
      const key = `i${scope}`;
      const isOpen = open.has(key);
      const row = tree.steps.get(scope)?.[0] ?? 0;
      found.push({ key, kind: "item", row, level, position: index + 1, siblings: items.length, scope, item, isOpen, parentKey });
      if (isOpen) addScope(scope, level + 1, key);
    });
  };
  addScope("", 1, null);
  return found;
}

/** Return the steps that a filter selects, in canonical order and without their containers. */
export function filteredRows(run: RunState, filter: StepFilter): TreeRow[] {
  const rows = run.steps.inOrder().filter((row) => isSelected(run, row, filter));
  return rows.map((row, index) => ({
    key: `s${run.steps.id(row)}`, kind: "step", row, level: 1, position: index + 1, siblings: rows.length,
    scope: run.steps.text(row, "scope") ?? "", item: null, isOpen: null, parentKey: null,
  }));
}

function isSelected(run: RunState, row: number, filter: StepFilter): boolean {
  switch (filter) {
    case "all":
      return true;
    case "active":
      return ACTIVE.includes(stepState(run, row));
    case "failed":
      return run.steps.text(row, "outcome") === "Failed";
    case "retried":
      return (run.steps.number(row, "attempt") ?? 0) > 1 || (run.steps.number(row, "crashCount") ?? 0) > 0;
  }
}

/** Return the keys that must be open for a step to be listed. */
export function keysAbove(run: Pick<RunState, "steps">, tree: StepTree, row: number): string[] {
  const keys: string[] = [];
  let scope = run.steps.text(row, "scope") ?? "";
  for (let at = splitScope(scope); at; at = splitScope(scope)) {
    keys.push(`i${scope}`);
    const { entry } = at;
    scope = parentOf(entry);
    const container = (tree.steps.get(scope) ?? []).find(
      (each) => entryOf(scope, run.steps.text(each, "nodeId") ?? "", run.steps.number(each, "ordinal") ?? 0) === entry,
    );
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
