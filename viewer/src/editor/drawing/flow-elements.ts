/** Nodes and edges of a document as xyflow has them; what has not changed stays the same object, so it is not drawn again. */
import type { Edge } from "@xyflow/react";

import { edgeClass, type RunNode } from "../../graph/drawing";
import { isContainer, type Box, type Layout } from "../../graph/layout";
import type { Graph, GraphNode } from "../../store/graph";
import { edgesOf, type Document } from "../document/document";
import { flowHandles, placedHandles, type PlacedHandle } from "./places";

export type Places = ReadonlyMap<string, { x: number; y: number }>;

interface Made {
  node: GraphNode;
  box: Box;
  handles: readonly PlacedHandle[];
  isSelected: boolean;
  isFixed: boolean;
  flow: RunNode;
}

/** Makes the nodes; one for each drawing, since it remembers those that it has made. */
export class FlowNodes {
  private made = new Map<string, Made>();

  /** Return the nodes in the order of the edges, containers before their bodies. `dragged`: where nodes are just now. */
  of(document: Document, graph: Graph, layout: Layout, selected: ReadonlySet<string>, dragged: Places, isFixed: boolean): RunNode[] {
    const next = new Map<string, Made>();
    for (const node of alongEdges(graph)) {
      const drawn = layout.get(node.id) ?? { x: 0, y: 0, w: 200, h: 49 };
      const place = dragged.get(node.id);
      const box = place ? { ...drawn, ...place } : drawn;
      const handles = placedHandles(document, node.id);
      const known = this.made.get(node.id);
      const isSame = known?.node === node && known.handles === handles && known.isSelected === selected.has(node.id) && known.isFixed === isFixed && isSameBox(known.box, box);
      next.set(node.id, isSame ? known : { node, box, handles, isSelected: selected.has(node.id), isFixed, flow: flowNode(node, box, handles, selected.has(node.id), isFixed, known) });
    }
    this.made = next;
    return [...next.values()].map(({ flow }) => flow);
  }
}

function flowNode(node: GraphNode, box: Box, handles: readonly PlacedHandle[], isSelected: boolean, isFixed: boolean, known: Made | undefined): RunNode {
  const size = { width: box.w, height: box.h };
  const isSameNode = known?.node === node && known.handles === handles && known.box.w === box.w && known.box.h === box.h;
  return {
    id: node.id,
    type: node.kind === "noteNode" ? "note" : isContainer(node) ? "container" : "step",
    position: { x: box.x, y: box.y },
    data: isSameNode ? known.flow.data : { node, handles: [] },
    selected: isSelected,
    draggable: !isFixed,
    ...size,
    measured: size,
    handles: isSameNode ? (known.flow.handles ?? []) : flowHandles(handles, box),
    ...(node.parent === null ? {} : { parentId: node.parent }),
  };
}

function isSameBox(one: Box, other: Box): boolean {
  return one.x === other.x && one.y === other.y && one.w === other.w && one.h === other.h;
}

/** Return the nodes as Tab goes: from those that nothing leads to along the edges, containers before their bodies. */
function alongEdges(graph: Graph): readonly GraphNode[] {
  const byId = new Map(graph.nodes.map((node) => [node.id, node]));
  const entered = new Set(graph.edges.map((edge) => edge.to));
  const next = new Map<string, string[]>();
  for (const edge of graph.edges) next.set(edge.from, [...(next.get(edge.from) ?? []), edge.to]);
  const ordered = new Set<GraphNode>();
  const add = (node: GraphNode | undefined): void => {
    if (!node || ordered.has(node)) return;
    if (node.parent !== null) add(byId.get(node.parent));
    ordered.add(node);
    const children = graph.nodes.filter((each) => each.parent === node.id && each.isStart).map((each) => each.id);
    for (const id of [...children, ...(next.get(node.id) ?? [])]) add(byId.get(id));
  };
  for (const node of graph.nodes) if (node.isStart && node.parent === null) add(node);
  for (const node of graph.nodes) if (!entered.has(node.id)) add(node);
  graph.nodes.forEach(add);
  return [...ordered];
}

export function flowEdges(document: Document, graph: Graph, selected: ReadonlySet<string>, taken: ReadonlyMap<string, number>, hasEnded: boolean): Edge<{ taken: number }>[] {
  const ids = new Set(graph.nodes.map((node) => node.id));
  const kinds = new Map(graph.edges.map((edge) => [edge.id, edge]));
  return edgesOf(document).flatMap((edge) => {
    const shown = kinds.get(edge.id);
    if (!shown || !ids.has(edge.source) || !ids.has(edge.target)) return [];
    const count = taken.get(edge.id) ?? 0;
    const sourceHandle = endOf(document, edge.source, "source", edge.sourceHandle);
    const targetHandle = endOf(document, edge.target, "target", edge.targetHandle);
    if (sourceHandle === null || targetHandle === null) return [];
    return [{ ...edge, sourceHandle, targetHandle, className: edgeClass(shown, count, hasEnded), selected: selected.has(edge.id), data: { taken: count }, interactionWidth: 20 }];
  });
}

/** Return the handle at which an edge ends; the first one of its kind if the node does not have it any more. */
function endOf(document: Document, nodeId: string, type: "source" | "target", id: string): string | null {
  const handles = placedHandles(document, nodeId).filter((handle) => handle.type === type);
  return (handles.find((handle) => handle.id === id) ?? handles[0])?.id ?? null;
}
