/** Overlays of the drawing: a figure for each node, summed up over its steps. */
import { workOf } from "./node-states";
import type { RunState } from "./run";
import { costOf } from "./step-tree";

export type Measure = "time" | "wait" | "tokens" | "cost" | "count";

export interface Figures {
  /** By node; only those of which there is something. */
  of: ReadonlyMap<string, number>;
  most: number;
  /** Of costs. */
  currency: string;
}

/** Return the figures of all nodes: milliseconds of work or of waiting, tokens, an amount of money, or steps. */
export function figuresOf(run: RunState, measure: Measure): Figures {
  const found = new Map<string, number>();
  let currency = "";
  const { steps } = run;
  if (run.rows.isPartial) {
    for (const [nodeId, node] of run.nodes) {
      const value = { time: node.workMs, wait: 0, tokens: node.tokens, cost: 0, count: node.steps }[measure];
      if (value) found.set(nodeId, value);
    }
  } else {
    for (let row = 0; row < steps.count; row++) {
      const value = valueOf(run, row, measure);
      const nodeId = steps.text(row, "nodeId") ?? "";
      if (value) found.set(nodeId, (found.get(nodeId) ?? 0) + value);
      if (measure === "cost") currency ||= steps.text(row, "cost")?.split(" ")[1] ?? "";
    }
  }
  return { of: found, most: Math.max(0, ...found.values()), currency };
}

function valueOf(run: RunState, row: number, measure: Measure): number {
  const { steps } = run;
  switch (measure) {
    case "time":
      return workOf(steps, row, run.now);
    case "wait":
      return waitOf(run, row);
    case "tokens":
      return (steps.number(row, "tokensIn") ?? 0) + (steps.number(row, "tokensOut") ?? 0);
    case "cost":
      return costOf(steps.text(row, "cost"));
    case "count":
      return 1;
  }
}

/** Return how long a step waited until its current attempt started, without the work of earlier attempts. */
function waitOf(run: RunState, row: number): number {
  const { steps } = run;
  const earlier = run.attempts.get(steps.id(row)) ?? [];
  const created = steps.number(row, "createdAt");
  const started = steps.number(row, "startedAt") ?? run.now;
  const worked = earlier.reduce((sum, each) => sum + (each.startedAt !== null && each.endedAt !== null ? each.endedAt - each.startedAt : 0), 0);
  return created === null ? 0 : Math.max(0, started - created - worked);
}

/** Return the heat of a figure, from 0 for the least to 4 for the most; the square root keeps small ones apart. */
export function heatOf(value: number, most: number): number {
  return most <= 0 ? 0 : Math.min(4, Math.floor(5 * Math.sqrt(value / most)));
}
