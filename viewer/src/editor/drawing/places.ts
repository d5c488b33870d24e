/** Where the handles of a node stand, for its elements and for the edges that xyflow draws to them. */
import { Position, type NodeHandle } from "@xyflow/react";

import type { Box } from "../../graph/layout";
import { handlesOf, isSubAgent, type NodeHandle as Handle } from "../document/connections";
import { edgesOf, nodesOf, type Document } from "../document/document";
import type { JsonObject } from "../document/json";

const SIZE = 12;

export interface PlacedHandle extends Handle {
  position: Position;
  /** Along its side, in percent. */
  along: number;
}

const SIDES = { left: Position.Left, right: Position.Right, top: Position.Top, bottom: Position.Bottom } as const;
const known = new WeakMap<JsonObject, Map<string, readonly PlacedHandle[]>>();
const NONE: readonly PlacedHandle[] = [];

/** Return the handles of a node; the same list as long as they are the same. */
export function placedHandles(document: Document, nodeId: string): readonly PlacedHandle[] {
  const node = nodesOf(document).get(nodeId);
  if (!node) return NONE;
  const hasException = edgesOf(document).some((edge) => edge.source === nodeId && edge.sourceHandle === "agentException");
  const key = node.label === "Agent" ? `${isSubAgent(document, nodeId)} ${hasException}` : "";
  const byKey = known.get(node.raw) ?? new Map<string, readonly PlacedHandle[]>();
  known.set(node.raw, byKey);
  const found = byKey.get(key) ?? place(handlesOf(document, node));
  byKey.set(key, found);
  return found;
}

function place(handles: readonly Handle[]): readonly PlacedHandle[] {
  return handles.map((handle) => {
    const side = handles.filter((each) => each.side === handle.side);
    return { ...handle, position: SIDES[handle.side], along: (100 * (side.indexOf(handle) + 1)) / (side.length + 1) };
  });
}

/** Return the handles as xyflow has them, so that it need not measure them. */
export function flowHandles(handles: readonly PlacedHandle[], box: Box): NodeHandle[] {
  return handles.map(({ id, type, position, side, along }) => {
    const [x, y] = side === "left" ? [0, (box.h * along) / 100] : side === "right" ? [box.w, (box.h * along) / 100] : [(box.w * along) / 100, side === "top" ? 0 : box.h];
    return { id, type, position, x: x - SIZE / 2, y: y - SIZE / 2, width: SIZE, height: SIZE };
  });
}
