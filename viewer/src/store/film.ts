/**
 * The film of a run: the states of its nodes at any time, from nothing but the times of its steps and attempts. A step
 * has a state from each of its transitions on; before the first one it does not exist.
 */
import { takenEdges } from "./edges";
import { stateOf, stepState, type NodeSummary, type StepState } from "./node-states";
import type { Attempt, RunState } from "./run";
import { isOver } from "./run-status";

/** A step enters a state at a time, in milliseconds since 1970. */
export interface Transition {
  at: number;
  state: StepState;
}

/** What an attempt left its step in until it became ready again. */
const AFTER: Readonly<Record<string, StepState>> = {
  waited_for_input: "needs_input",
  unknown_outcome: "needs_input",
  over_budget: "over_budget",
};

type Facts = Pick<RunState, "steps" | "header" | "handlingNodes" | "now" | "attempts">;

/** Return the transitions of a step in the order of time; where several are at one time, the last one counts. */
export function transitionsOf(run: Facts, row: number): Transition[] {
  const { steps } = run;
  const found: Transition[] = [];
  const enter = (state: StepState, at: number | null): void => {
    if (at !== null) found.push({ at: Math.max(at, found.at(-1)?.at ?? at), state });
  };
  const earlier = (run.attempts.get(steps.id(row)) ?? []).toSorted((a, b) => a.attempt - b.attempt);
  const created = steps.number(row, "createdAt");
  const firstReady = earlier[0] ? earlier[0].readyAt : steps.number(row, "notBefore");
  const isQueued = steps.text(row, "status") === "queued";
  const present = stepState(run, row);
  enter("queued", created);
  if (!isQueued) enter("ready", firstReady ?? created);
  for (const attempt of earlier) addAttempt(attempt, enter);
  if (earlier.length) enter("ready", steps.number(row, "notBefore") ?? earlier.at(-1)?.nextAttemptAt ?? null);
  const started = steps.number(row, "startedAt");
  enter("running", started);
  const finished = steps.number(row, "finishedAt");
  const isContainer = steps.text(row, "outcome") === "ContainerOpened";
  if (isContainer && finished !== null) {
    enter("open", finished);
    if (present !== "open") enter(present, steps.number(row, "endedAt") ?? finished);
  } else if (present === "closed") {
    enter("closed", finished ?? run.header?.finishedAt ?? run.now);
  } else if (finished !== null && present !== "ready" && present !== "delayed" && present !== "running") {
    enter(present, finished);
  }
  return found;
}

function addAttempt(attempt: Attempt, enter: (state: StepState, at: number | null) => void): void {
  enter("ready", attempt.readyAt);
  enter("running", attempt.startedAt);
  enter(AFTER[attempt.endReason ?? ""] ?? (attempt.nextAttemptAt === null ? "ready" : "delayed"), attempt.endedAt);
}

export type MarkKind = "wait" | "form" | "failure";

/** A moment worth a look: a wait begins, a form is shown, a step fails. */
export interface Mark {
  at: number;
  kind: MarkKind;
}

const MARKED: Readonly<Partial<Record<StepState, MarkKind>>> = {
  delayed: "wait", over_budget: "wait", needs_input: "form", failed: "failure", handled: "failure",
};
const STATES: readonly StepState[] = [
  "queued", "ready", "delayed", "running", "unresponsive", "needs_input", "over_budget", "streaming", "open", "done",
  "failed", "handled", "closed",
];
const MAX_MARKS = 300; // more than a bar has room for
const RUNNING = STATES.indexOf("running");

/** The transitions of all steps of a run, indexed so that the state at a time is found in a few milliseconds. */
export class Film {
  /** Milliseconds since 1970. */
  readonly start: number;
  readonly end: number;
  private readonly firsts: Int32Array; // of each row, where its transitions begin
  private readonly times: Float64Array;
  private readonly states: Uint8Array;

  constructor(private readonly run: RunState) {
    const all = Array.from({ length: run.steps.count }, (_, row) => transitionsOf(run, row));
    const total = all.reduce((sum, each) => sum + each.length, 0);
    this.firsts = new Int32Array(all.length + 1);
    this.times = new Float64Array(total);
    this.states = new Uint8Array(total);
    let place = 0;
    all.forEach((transitions, row) => {
      this.firsts[row] = place;
      for (const { at, state } of transitions) {
        this.times[place] = at;
        this.states[place++] = STATES.indexOf(state);
      }
    });
    this.firsts[all.length] = place;
    [this.start, this.end] = this.bounds();
  }

  /** Milliseconds that the film lasts; 1 at least. */
  get length(): number {
    return Math.max(1, this.end - this.start);
  }

  /** Return the state of a step at a time; null if there was no such step yet. */
  stateAt(row: number, at: number): StepState | null {
    const place = this.placeAt(row, at);
    return place === null ? null : (STATES[this.states[place] ?? 0] ?? null);
  }

  /** Return the summaries of the nodes that had steps at a time. */
  nodesAt(at: number): Map<string, NodeSummary> {
    const nodes = new Map<string, { counts: Partial<Record<StepState, number>> } & Omit<NodeSummary, "state" | "counts">>();
    const { steps } = this.run;
    for (let row = 0; row < steps.count; row++) {
      const place = this.placeAt(row, at);
      const state = place === null ? undefined : STATES[this.states[place] ?? 0];
      if (!state) continue;
      const nodeId = steps.text(row, "nodeId") ?? "";
      let node = nodes.get(nodeId);
      if (!node) {
        node = { counts: {}, steps: 0, attempts: 0, workMs: 0, items: 0, tokens: 0, firstStarted: null, lastFinished: null };
        nodes.set(nodeId, node);
      }
      node.counts[state] = (node.counts[state] ?? 0) + 1;
      node.steps += 1;
      const started = steps.number(row, "startedAt");
      const finished = steps.number(row, "finishedAt");
      const isContainer = steps.text(row, "outcome") === "ContainerOpened";
      const end = isContainer ? steps.number(row, "endedAt") : finished;
      if (started !== null && started <= at) {
        node.workMs += Math.max(0, Math.min(end ?? at, at) - started);
        node.attempts += steps.number(row, "attempt") ?? 0;
        node.firstStarted = node.firstStarted === null ? started : Math.min(node.firstStarted, started);
      }
      if (finished !== null && finished <= at) {
        node.tokens += (steps.number(row, "tokensIn") ?? 0) + (steps.number(row, "tokensOut") ?? 0);
        node.items += steps.number(row, "count") ?? 0;
        node.lastFinished = node.lastFinished === null ? finished : Math.max(node.lastFinished, finished);
      }
    }
    return new Map([...nodes].map(([id, node]) => [id, { ...node, state: stateOf(node.counts) }]));
  }

  /** Return the moments worth a look, each kind at most once in a part of the bar. */
  marks(): Mark[] {
    const found = new Map<string, Mark>();
    for (let place = 0; place < this.times.length; place++) {
      const kind = MARKED[STATES[this.states[place] ?? 0] ?? "done"];
      const at = this.times[place] ?? 0;
      if (!kind) continue;
      const part = `${kind} ${Math.floor((MAX_MARKS * (at - this.start)) / this.length)}`;
      if (!found.has(part)) found.set(part, { at, kind });
    }
    return [...found.values()].sort((a, b) => a.at - b.at);
  }

  /** Return the next or previous time at which a step changes its state, at least a five-hundredth of the film away. */
  neighbour(at: number, direction: 1 | -1): number {
    const far = this.length / 500;
    let best = direction > 0 ? this.end : this.start;
    for (const time of this.times) {
      if (direction > 0 ? time >= at + far && time < best : time <= at - far && time > best) best = time;
    }
    return best;
  }

  /** Return the stretches in which no step ran, in order. */
  idle(): (readonly [from: number, to: number])[] {
    const changes: [at: number, by: number][] = [];
    for (let row = 0; row + 1 < this.firsts.length; row++) {
      const [first, after] = [this.firsts[row] ?? 0, this.firsts[row + 1] ?? 0];
      for (let place = first; place < after; place++) {
        if (this.states[place] !== RUNNING) continue;
        changes.push([this.times[place] ?? 0, 1], [place + 1 < after ? (this.times[place + 1] ?? 0) : this.end, -1]);
      }
    }
    changes.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
    const found: (readonly [number, number])[] = [];
    let [running, since] = [0, this.start];
    for (const [at, by] of changes) {
      if (running === 0 && at > since) found.push([since, at]);
      running += by;
      if (running === 0) since = at;
    }
    if (running === 0 && this.end > since) found.push([since, this.end]);
    return found;
  }

  /** Return the place of a step's last transition that is not after a time; null if it has none. */
  private placeAt(row: number, at: number): number | null {
    const first = this.firsts[row] ?? 0;
    let place = (this.firsts[row + 1] ?? first) - 1;
    while (place >= first && (this.times[place] ?? 0) > at) place--;
    return place < first ? null : place;
  }

  private bounds(): [number, number] {
    const { header, now } = this.run;
    const created = this.times.reduce((least, at) => Math.min(least, at), Number.POSITIVE_INFINITY);
    const start = header?.startedAt ?? header?.createdAt ?? (Number.isFinite(created) ? created : 0);
    const last = this.times.reduce((most, at) => Math.max(most, at), start);
    const end = header && isOver(header.status) ? Math.max(header.finishedAt ?? start, last) : Math.max(now, last);
    return [start, end];
  }
}

/** Return a run as it was at a time: what the drawing and the list of nodes show of it. */
export function runAt(run: RunState, film: Film, at: number): RunState {
  const isEnd = at >= film.end;
  const header = run.header && !isEnd && isOver(run.header.status) ? { ...run.header, status: "running" } : run.header;
  return { ...run, header, nodes: film.nodesAt(at), edges: takenEdges(run, at) };
}
