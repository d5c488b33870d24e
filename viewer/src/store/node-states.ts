/** States of steps and nodes: what their rows mean at the moment at which they were read. */
import type { RunState } from "./run";
import { isOver, type Look } from "./run-status";
import type { StepTable } from "./steps";

export type StepState =
  | "queued" | "ready" | "delayed" | "running" | "unresponsive" | "needs_input" | "over_budget" | "streaming"
  | "open" | "done" | "failed" | "handled" | "closed";
export type NodeState = StepState | "pending" | "skipped";

export const NODE_LOOKS: Readonly<Record<NodeState, Look>> = {
  pending: { word: "pending", icon: "–", tone: "neutral", border: "none" },
  skipped: { word: "skipped", icon: "⤳", tone: "muted", border: "bare" },
  queued: { word: "waits for a run slot", icon: "⋯", tone: "neutral", border: "dotted" },
  ready: { word: "in the queue", icon: "◔", tone: "neutral", border: "dashed" },
  delayed: { word: "due later", icon: "◷", tone: "neutral", border: "double" },
  running: { word: "running", icon: "▸", tone: "accent", border: "solid" },
  unresponsive: { word: "its worker does not respond", icon: "⚡", tone: "amber", border: "dashed" },
  needs_input: { word: "waits for a person", icon: "?", tone: "violet", border: "dashed" },
  over_budget: { word: "waits for a budget", icon: "¤", tone: "violet", border: "thick" },
  streaming: { word: "its text is streamed", icon: "❝", tone: "accent", border: "dotted" },
  open: { word: "its items run", icon: "▣", tone: "accent", border: "double" },
  done: { word: "done", icon: "✓", tone: "green", border: "thin" },
  failed: { word: "failed", icon: "✗", tone: "red", border: "thick" },
  handled: { word: "failed, handled", icon: "✗→", tone: "amber", border: "double" },
  closed: { word: "closed", icon: "⊘", tone: "muted", border: "solid" },
};

/** The states of a node with several steps, the one that is shown first. */
const PRECEDENCE: readonly StepState[] = [
  "failed", "unresponsive", "running", "needs_input", "over_budget", "streaming", "open", "delayed", "ready", "queued",
  "handled", "done", "closed",
];

export interface NodeSummary {
  state: NodeState;
  counts: Readonly<Partial<Record<StepState, number>>>;
  steps: number;
  attempts: number;
  /** Milliseconds of work; of a container, until its last item ended. */
  workMs: number;
  /** Items of a container, of all its steps. */
  items: number;
  tokens: number;
  firstStarted: number | null;
  lastFinished: number | null;
}

export function stepState(run: Pick<RunState, "steps" | "header" | "handlingNodes" | "now">, row: number): StepState {
  const { steps } = run;
  switch (steps.text(row, "status")) {
    case "queued":
      return "queued";
    case "ready":
      return (steps.number(row, "notBefore") ?? 0) > run.now ? "delayed" : "ready";
    case "waiting":
      return steps.text(row, "code")?.includes("budget") ? "over_budget" : "needs_input";
    case "awaiting_stream":
      return "streaming";
    case "open":
      return "open";
    case "closed":
      return "closed";
    case "done":
      return steps.text(row, "outcome") === "Failed" ? failureState(run, steps.text(row, "nodeId") ?? "") : "done";
    default:
      return "running"; // `running`, and `reported`: the next advance applies its report
  }
}

function failureState(run: Pick<RunState, "header" | "handlingNodes">, nodeId: string): StepState {
  return run.handlingNodes.has(nodeId) || run.header?.status === "succeeded" ? "handled" : "failed";
}

/** Return the summary of each node that has steps; while not all rows are here, by the counts of the server. */
export function summarizeNodes(run: Pick<RunState, "steps" | "header" | "handlingNodes" | "now" | "server" | "rows">): Map<string, NodeSummary> {
  if (run.server && (run.rows.isPartial || run.steps.count === 0)) return summarizeCounts(run.server.nodes);
  const nodes = new Map<string, { counts: Partial<Record<StepState, number>> } & Omit<NodeSummary, "state" | "counts">>();
  const { steps } = run;
  for (let row = 0; row < steps.count; row++) {
    const nodeId = steps.text(row, "nodeId") ?? "";
    let node = nodes.get(nodeId);
    if (!node) {
      node = { counts: {}, steps: 0, attempts: 0, workMs: 0, items: 0, tokens: 0, firstStarted: null, lastFinished: null };
      nodes.set(nodeId, node);
    }
    const state = stepState(run, row);
    node.counts[state] = (node.counts[state] ?? 0) + 1;
    node.steps += 1;
    node.attempts += steps.number(row, "attempt") ?? 0;
    node.tokens += (steps.number(row, "tokensIn") ?? 0) + (steps.number(row, "tokensOut") ?? 0);
    const started = steps.number(row, "startedAt");
    const finished = steps.number(row, "finishedAt");
    node.workMs += workOf(steps, row, run.now);
    node.items += steps.number(row, "count") ?? 0;
    node.firstStarted = least(node.firstStarted, started);
    node.lastFinished = greatest(node.lastFinished, finished);
  }
  return new Map(
    [...nodes].map(([id, node]) => {
      const counts = withUnresponsive(node.counts, run.server?.nodes[id]?.[UNRESPONSIVE] ?? 0);
      return [id, { ...node, counts, state: stateOf(counts) }];
    }),
  );
}

const UNRESPONSIVE = 4; // its place in the counts of a server

/** The state that each place in the counts of a server means; `reported` steps still count as running. */
const PLACES: readonly StepState[] = [
  "queued", "ready", "delayed", "running", "unresponsive", "running", "needs_input", "over_budget", "streaming", "open",
  "done", "failed", "handled", "closed",
];

function summarizeCounts(nodes: Readonly<Record<string, readonly number[]>>): Map<string, NodeSummary> {
  return new Map(
    Object.entries(nodes).map(([id, places]) => {
      const counts: Partial<Record<StepState, number>> = {};
      PLACES.forEach((state, place) => {
        const count = places[place] ?? 0;
        if (count) counts[state] = (counts[state] ?? 0) + count;
      });
      const [attempts = 0, first = 0, last = 0, workMs = 0, tokens = 0] = places.slice(PLACES.length);
      const steps = Object.values(counts).reduce((sum, count) => sum + count, 0);
      return [id, { counts, steps, attempts, workMs, items: 0, tokens, firstStarted: first || null, lastFinished: last || null, state: stateOf(counts) }];
    }),
  );
}

/** Return summaries in which one that has not changed is the same object as before, so that its readers rest. */
export function keepEqual(before: ReadonlyMap<string, NodeSummary>, after: Map<string, NodeSummary>): Map<string, NodeSummary> {
  for (const [id, summary] of after) {
    const known = before.get(id);
    if (known && isSame(known, summary)) after.set(id, known);
  }
  return after;
}

function isSame(a: NodeSummary, b: NodeSummary): boolean {
  const states = Object.keys(b.counts) as StepState[];
  return (
    a.state === b.state && a.steps === b.steps && a.attempts === b.attempts && a.workMs === b.workMs && a.items === b.items &&
    a.tokens === b.tokens && a.firstStarted === b.firstStarted && a.lastFinished === b.lastFinished &&
    Object.keys(a.counts).length === states.length && states.every((state) => a.counts[state] === b.counts[state])
  );
}

/** Return counts in which some running steps are unresponsive: only the server sees leases. */
function withUnresponsive(counts: Partial<Record<StepState, number>>, unresponsive: number): Partial<Record<StepState, number>> {
  const running = counts.running ?? 0;
  const lost = Math.min(unresponsive, running);
  if (!lost) return counts;
  const changed = { ...counts, unresponsive: lost, running: running - lost };
  if (!changed.running) delete (changed as Partial<typeof changed>).running;
  return changed;
}

/** Return the milliseconds that the current attempt of a step has worked; of a container, until its last item ended. */
export function workOf(steps: StepTable, row: number, now: number): number {
  const started = steps.number(row, "startedAt");
  if (started === null) return 0;
  if (steps.text(row, "outcome") === "ContainerOpened") {
    return Math.max(0, (steps.number(row, "endedAt") ?? (steps.text(row, "status") === "open" ? now : started)) - started);
  }
  const end = steps.number(row, "finishedAt") ?? (steps.text(row, "status") === "running" ? now : started);
  return Math.max(0, end - started);
}

export function stateOf(counts: Partial<Record<StepState, number>>): NodeState {
  return PRECEDENCE.find((state) => counts[state]) ?? "pending";
}

/** Return the state of a node, also of one without steps. */
export function nodeState(run: Pick<RunState, "nodes" | "header">, nodeId: string): NodeState {
  const summary = run.nodes.get(nodeId);
  if (summary) return summary.state;
  return run.header && isOver(run.header.status) ? "skipped" : "pending";
}

function least(a: number | null, b: number | null): number | null {
  return a === null ? b : b === null ? a : Math.min(a, b);
}

function greatest(a: number | null, b: number | null): number | null {
  return a === null ? b : b === null ? a : Math.max(a, b);
}
