/** How often a run has followed each edge of its graph. */
import type { GraphEdge } from "./graph";
import { groupBy } from "./groups";
import type { RunState } from "./run";

/** Return the counts by the edge's id until a time; edges to tools and sub-agents are never followed. */
export function takenEdges(run: Pick<RunState, "graph" | "steps">, until = Number.POSITIVE_INFINITY): Map<string, number> {
  const counts = new Map<string, number>();
  const outgoing = groupBy(run.graph?.edges ?? [], (edge) => edge.from);
  const { steps } = run;
  for (let row = 0; row < steps.count; row++) {
    const edges = outgoing.get(steps.text(row, "nodeId") ?? "");
    const outcome = steps.text(row, "outcome");
    if (!edges || steps.text(row, "status") !== "done" || outcome === null) continue;
    if ((steps.number(row, "finishedAt") ?? 0) > until) continue;
    const targets = steps.routedTo(row);
    for (const edge of edges) {
      if (isFollowed(edge, outcome, targets)) counts.set(edge.id, (counts.get(edge.id) ?? 0) + 1);
    }
  }
  return counts;
}

function isFollowed(edge: GraphEdge, outcome: string, targets: readonly string[] | null): boolean {
  if (edge.kind === "exception") return outcome === "Failed";
  if (edge.kind !== "flow" || outcome === "Failed") return false;
  return outcome === "Routed" ? (targets?.includes(edge.to) ?? false) : true;
}
