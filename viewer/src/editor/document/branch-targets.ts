/** The nodes that a node leads to, by handle, for its form. */
import { connect, disconnect } from "./commands";
import { targetHandleFor } from "./connections";
import { edgesOf, type Document } from "./document";

/** Return the targets of the edges from a node, by the handle at which they begin. */
export function branchTargets(document: Document, nodeId: string): Readonly<Record<string, readonly string[]>> {
  const targets: Record<string, string[]> = {};
  for (const edge of edgesOf(document)) if (edge.source === nodeId) (targets[edge.sourceHandle] ??= []).push(edge.target);
  return targets;
}

/** Draw the edges from a handle to these nodes alone. Raises Refusal for one that cannot be a target. */
export function withBranchTargets(document: Document, nodeId: string, handle: string, targets: readonly string[]): Document {
  const drawn = edgesOf(document).filter((edge) => edge.source === nodeId && edge.sourceHandle === handle);
  const gone = drawn.filter((edge) => !targets.includes(edge.target)).map((edge) => edge.id);
  const added = targets.filter((target) => !drawn.some((edge) => edge.target === target));
  return added.reduce((now, target) => connect(now, { source: nodeId, sourceHandle: handle, target, targetHandle: targetHandleFor(handle) }), gone.length ? disconnect(document, gone) : document);
}
