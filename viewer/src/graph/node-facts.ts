/** What is said about a node: its counts, and which of its steps a click shows. */
import { NODE_LOOKS, stepState, type NodeSummary, type StepState } from "../store/node-states";
import type { RunState } from "../store/run";

/** Return the counts of a node with several steps: "✓ 212 ▸ 8 ✗ 2". */
export function countsText(summary: NodeSummary): string {
  return Object.entries(summary.counts)
    .map(([state, count]) => `${NODE_LOOKS[state as StepState].icon} ${count.toLocaleString("en")}`)
    .join(" ");
}

/** Return the step that a click on a node shows: the first in the state of the node; null if it has none. */
export function stepToShow(run: RunState, nodeId: string): string | null {
  const state = run.nodes.get(nodeId)?.state;
  let found: number | null = null;
  for (let row = 0; row < run.steps.count; row++) {
    if (run.steps.text(row, "nodeId") !== nodeId || stepState(run, row) !== state) continue;
    if (found === null || run.steps.orderKey(row) < run.steps.orderKey(found)) found = row;
  }
  return found === null ? null : run.steps.id(found);
}
