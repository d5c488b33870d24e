/** Whether the rows of a copy are those of the server: its counts by node and state are the checksum. */
import type { RunState } from "./run";

/** Of a node's counts, the places that belong to one status of rows; clocks and leases divide them further. */
const GROUPS: readonly (readonly [string, readonly number[]])[] = [
  ["queued", [0]],
  ["ready", [1, 2]],
  ["running", [3, 4]],
  ["reported", [5]],
  ["waiting", [6, 7]],
  ["awaiting_stream", [8]],
  ["open", [9]],
  ["done", [10, 11, 12]],
  ["closed", [13]],
];

/** Return the nodes of which the copy has other rows than the server counts. */
export function differingNodes(run: Pick<RunState, "steps" | "server">): string[] {
  const counted = new Map<string, Map<string, number>>();
  for (let row = 0; row < run.steps.count; row++) {
    const nodeId = run.steps.text(row, "nodeId") ?? "";
    const status = run.steps.text(row, "status") ?? "";
    const counts = counted.get(nodeId) ?? new Map<string, number>();
    counts.set(status, (counts.get(status) ?? 0) + 1);
    counted.set(nodeId, counts);
  }
  return Object.entries(run.server?.nodes ?? {})
    .filter(([nodeId, places]) =>
      GROUPS.some(([status, group]) => sum(places, group) !== (counted.get(nodeId)?.get(status) ?? 0)),
    )
    .map(([nodeId]) => nodeId);
}

function sum(places: readonly number[], group: readonly number[]): number {
  return group.reduce((total, place) => total + (places[place] ?? 0), 0);
}
