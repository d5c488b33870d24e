/** One sentence on what became of a run, or what it waits for, with the step that is the cause. */
import { stepState } from "./node-states";
import type { RunState } from "./run";
import type { Tone } from "./run-status";

export interface Explanation {
  tone: Tone;
  sentence: string;
  stepId: string | null;
  /** Steps that failed and after which their node's own policy continued. */
  handled: number;
  /** What the run waits for, in the words of the API: `over`, `person`, `budget`, `work`, `worker`. */
  waitsFor: string;
}

/** Explain a run from its rows; null before its header is known. */
export function explainRun(run: RunState): Explanation | null {
  const header = run.header;
  if (!header) return null;
  const handled = [...run.nodes.values()].reduce((sum, node) => sum + (node.counts.handled ?? 0), 0);
  const base = { stepId: null, handled, waitsFor: "over" };
  switch (header.status) {
    case "succeeded":
      return { ...base, tone: "green", sentence: "The run has succeeded." };
    case "failed": {
      const stepId = firstFailure(run);
      return { ...base, tone: "red", stepId, sentence: firstLine(header.error) ?? "The run has failed." };
    }
    case "cancelled":
      return { ...base, tone: "muted", sentence: firstLine(header.error) ?? "The run was cancelled." };
    case "refused":
      return { ...base, tone: "red", sentence: firstLine(header.error) ?? "The run was refused: no node has run." };
    default: {
      const waits = run.server?.waits;
      if (waits) return { ...base, tone: toneOf(waits.waitsFor), sentence: waits.sentence, stepId: waits.stepId, waitsFor: waits.waitsFor };
      return { ...base, ...whatItWaitsFor(run) };
    }
  }
}

function toneOf(waitsFor: string): Tone {
  if (waitsFor === "person" || waitsFor === "budget") return "violet";
  if (waitsFor === "nobody") return "red";
  if (waitsFor === "silent_lease" || waitsFor === "letting_go") return "amber";
  return waitsFor === "work" ? "accent" : "neutral";
}

/** Return the step whose failure ended the run: the first that failed without being handled. */
export function firstFailure(run: RunState): string | null {
  let first: { id: string; at: number } | null = null;
  for (let row = 0; row < run.steps.count; row++) {
    if (stepState(run, row) !== "failed") continue;
    const at = run.steps.number(row, "finishedAt") ?? Number.POSITIVE_INFINITY;
    if (!first || at < first.at) first = { id: run.steps.id(row), at };
  }
  return first?.id ?? null;
}

function whatItWaitsFor(run: RunState): Pick<Explanation, "tone" | "sentence" | "stepId" | "waitsFor"> {
  const first = new Map<string, string>();
  const counts = new Map<string, number>();
  for (let row = 0; row < run.steps.count; row++) {
    const state = stepState(run, row);
    counts.set(state, (counts.get(state) ?? 0) + 1);
    if (!first.has(state)) first.set(state, run.steps.id(row));
  }
  const cause = (state: string): string | null => first.get(state) ?? null;
  const some = (state: string): number => counts.get(state) ?? 0;
  if (some("running")) {
    const sentence = `${plural(some("running"), "step was", "steps were")} running.`;
    return { tone: "accent", sentence, stepId: cause("running"), waitsFor: "work" };
  }
  if (some("over_budget")) {
    const sentence = "The run waited for a person who raises its budget.";
    return { tone: "violet", sentence, stepId: cause("over_budget"), waitsFor: "budget" };
  }
  if (some("needs_input") || run.forms.length) {
    const tips = run.forms[0]?.tips;
    const sentence = `The run waited for a person to fill in a form${tips ? `: ${firstLine(tips)}` : "."}`;
    return { tone: "violet", sentence, stepId: cause("needs_input"), waitsFor: "person" };
  }
  if (some("ready") || some("delayed")) {
    const sentence = `${plural(some("ready") + some("delayed"), "step waited", "steps waited")} for a worker.`;
    return { tone: "neutral", sentence, stepId: cause("ready") ?? cause("delayed"), waitsFor: "worker" };
  }
  const sentence = run.header?.status === "queued" ? "The run had not started." : "The run was not over.";
  return { tone: "neutral", sentence, stepId: null, waitsFor: "session" };
}

function firstLine(text: string | null): string | null {
  return text?.split("\n").find((line) => line.trim())?.trim() ?? null;
}

function plural(count: number, one: string, many: string): string {
  return `${count} ${count === 1 ? one : many}`;
}
