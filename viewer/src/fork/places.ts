/** Steps by the names that a fork's request takes: a node, a node with its item (`LLM:0[3]`), or a step's id. */
import type { RunState } from "../store/run";
import { scopeParts } from "../store/scopes";

type Steps = Pick<RunState, "steps">;

/** Where a fork begins: one step, or all of a node. */
export interface ForkPoint {
  nodeId: string;
  stepId: string | null;
}

/** Return the steps of a node in canonical order. */
export function stepsOfNode({ steps }: Steps, nodeId: string): number[] {
  return steps.inOrder().filter((row) => steps.text(row, "nodeId") === nodeId);
}

/** Return the name of a step: as readable as possible while it means no other step. */
export function placeOf(run: Steps, stepId: string): string {
  const { steps } = run;
  const row = steps.rowOf(stepId);
  if (row === null) return stepId;
  const nodeId = steps.text(row, "nodeId") ?? "";
  const name = labelOf(nodeId, steps.text(row, "scope") ?? "");
  const isUnique = stepsOfNode(run, nodeId).filter((each) => name === nodeId || labelOf(nodeId, steps.text(each, "scope") ?? "") === name).length === 1;
  return isUnique ? name : stepId;
}

export function placeOfPoint(run: Steps, point: ForkPoint): string {
  return point.stepId === null ? point.nodeId : placeOf(run, point.stepId);
}

function labelOf(nodeId: string, scope: string): string {
  const items = scopeParts(scope).map((part) => part.item);
  return items.length ? `${nodeId}[${items.join(".")}]` : nodeId;
}

/** Return the node and the items of a name, for people; null for the id of a step. */
export function parsePlace(place: string): { nodeId: string; items: readonly number[] } | null {
  if (/^[0-9a-f]{32}$/.test(place)) return null;
  const bracket = /^(.+)\[([0-9.]+)\]$/.exec(place);
  const [, nodeId = place, items = ""] = bracket ?? [];
  return { nodeId, items: items ? items.split(".").map(Number) : [] };
}
