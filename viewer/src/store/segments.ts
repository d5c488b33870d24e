/** Where the time of a step went: stretches of waiting and of work, relative to the start of its run. */
import type { Attempt, ModelCall, ToolCall } from "./run";
import type { Step } from "./steps";

export type SegmentKind =
  | "run_slot" | "queue" | "delayed" | "work" | "rate_limit" | "call" | "tool" | "person" | "stream_wait" | "open" | "lost";

export interface Segment {
  kind: SegmentKind;
  /** Milliseconds since the start of the run. */
  from: number;
  to: number;
  label: string;
  /** Of a model call: when its first token came. */
  firstToken?: number;
}

export const SEGMENT_WORDS: Readonly<Record<SegmentKind, string>> = {
  run_slot: "waited for a run slot",
  queue: "waited for a worker",
  delayed: "due later",
  work: "worked",
  rate_limit: "waited for a rate limit",
  call: "called a model",
  tool: "called a tool",
  person: "waited for a person",
  stream_wait: "waited for another message stream",
  open: "its items ran",
  lost: "its worker was lost",
};

const BETWEEN: Readonly<Record<string, SegmentKind>> = {
  waited_for_input: "person",
  over_budget: "person",
  unknown_outcome: "person",
  postponed: "rate_limit",
};

/** Return the segments of a step in the order of time; calls lie within its work. */
export function segmentsOf(
  step: Step,
  attempts: readonly Attempt[],
  calls: readonly ModelCall[],
  tools: readonly ToolCall[],
  start: number,
  now: number,
): Segment[] {
  const found: Segment[] = [];
  const add = (kind: SegmentKind, from: number | null, to: number | null, label = SEGMENT_WORDS[kind]): void => {
    if (from !== null && to !== null && to >= from) found.push({ kind, from: from - start, to: to - start, label });
  };
  const earlier = attempts.toSorted((a, b) => a.attempt - b.attempt);
  let ready = earlier[0]?.readyAt ?? step.createdAt;
  if (ready !== null && (step.createdAt ?? ready) < ready) add("run_slot", step.createdAt, ready);
  for (const attempt of earlier) {
    add("queue", attempt.readyAt ?? ready, attempt.startedAt);
    const isLost = attempt.endReason === "worker_lost";
    const lost = attempt.worker === null ? SEGMENT_WORDS.lost : `${SEGMENT_WORDS.lost} (${attempt.worker})`;
    add(isLost ? "lost" : "work", attempt.startedAt, attempt.endedAt, isLost ? lost : SEGMENT_WORDS.work);
    const between = BETWEEN[attempt.endReason ?? ""];
    const reason = between === "rate_limit" ? attempt.error : null; // it names the account
    if (between) add(between, attempt.endedAt, attempt.nextAttemptAt ?? step.startedAt ?? now, reason ?? SEGMENT_WORDS[between]);
    ready = attempt.nextAttemptAt ?? attempt.endedAt ?? ready;
  }
  addCurrent(step, ready, now, add);
  for (const call of calls) {
    if (call.waitedMs > 0 && call.startedAt !== null) {
      add("rate_limit", call.startedAt - call.waitedMs, call.startedAt, `waited for the rate limit of ${call.account ?? call.model}`);
    }
    add("call", call.startedAt, call.endedAt ?? now, `called ${call.model}`);
    const added = found.at(-1);
    if (added?.kind === "call" && call.firstTokenAt !== null) added.firstToken = call.firstTokenAt - start;
  }
  for (const tool of tools) {
    const end = tool.startedAt !== null && tool.elapsedMs !== null ? tool.startedAt + tool.elapsedMs : null;
    add("tool", tool.startedAt, end, `called ${tool.toolName}`);
  }
  return found;
}

type Add = (kind: SegmentKind, from: number | null, to: number | null) => void;

function addCurrent(step: Step, ready: number | null, now: number, add: Add): void {
  if (step.status === "queued") return add("run_slot", step.createdAt, now);
  if (step.status === "ready") {
    if ((step.notBefore ?? 0) > now) return add("delayed", now, step.notBefore);
    return add("queue", ready, now);
  }
  const due = step.notBefore !== null && step.notBefore > (ready ?? 0) ? step.notBefore : ready;
  add("queue", due, step.startedAt);
  const isWorking = step.status === "running" || step.status === "reported";
  add("work", step.startedAt, step.finishedAt ?? (isWorking ? now : null));
  if (step.status === "waiting") add("person", step.finishedAt, now);
  if (step.status === "open") add("open", step.startedAt, now);
  else if (step.endedAt !== null) add(step.outcome === "ContainerOpened" ? "open" : "stream_wait", step.finishedAt, step.endedAt);
}
