/** Nodes and edges of a document as xyflow has them; what has not changed stays the same object, so it is not drawn again. */
import type { Edge } from "@xyflow/react";

import { edgeClass, type RunNode } from "../../graph/drawing";
import { isContainer, type Box, type Layout } from "../../graph/layout";
import type { Graph, GraphNode } from "../../store/graph";
import { edgesOf, graphOf, type Document } from "../document/document";
import { flowHandles, placedHandles, type PlacedHandle } from "./places";

export type Places = ReadonlyMap<string, { x: number; y: number }>;

/** A document and its drawing. */
export interface Drawn {
  document: Document;
  graph: Graph;
}

/** Remembers a drawing, so that typing into a form does not draw anything again. */
export class DrawnOnce {
  private latest: Document | null = null;
  private drawn: Drawn | null = null;

  /** Return the drawing of a document: the same object as before if nothing of it has changed. */
  readonly of = (document: Document): Drawn => {
    if (this.drawn && this.latest === document) return this.drawn;
    const before = this.drawn;
    const graph = graphOf(document);
    const nodes = same(before?.graph.nodes, graph.nodes);
    const edges = same(before?.graph.edges, graph.edges);
    const isSame = before !== null && nodes === before.graph.nodes && edges === before.graph.edges && edgesOf(document) === edgesOf(before.document);
    this.latest = document;
    this.drawn = isSame ? before : { document, graph: { ...graph, nodes, edges } };
    return this.drawn;
  };
}

/** Return a list with the elements of before that have not changed; the list of before if none has. */
function same<T extends { id: string }>(before: readonly T[] | undefined, after: readonly T[]): readonly T[] {
  if (!before) return after;
  const known = new Map(before.map((each) => [each.id, each]));
  const list = after.map((each) => {
    const was = known.get(each.id);
    return was && (was === each || JSON.stringify(was) === JSON.stringify(each)) ? was : each;
  });
  return list.length === before.length && list.every((each, place) => each === before[place]) ? before : list;
}

interface Made {
  node: GraphNode;
  box: Box;
  handles: readonly PlacedHandle[];
  isSelected: boolean;
  isFixed: boolean;
  flow: RunNode;
}

/** Makes nodes and edges; one for each drawing, since it remembers those that it has made. */
export class FlowElements {
  private made = new Map<string, Made>();
  private nodes: RunNode[] = [];
  private edges: FlowEdge[] = [];

  /** Return the nodes in the order of the edges, containers before their bodies. `dragged`: where nodes are just now. */
  nodesOf({ document, graph }: Drawn, layout: Layout, selected: ReadonlySet<string>, dragged: Places, isFixed: boolean): RunNode[] {
    const next = new Map<string, Made>();
    for (const node of alongEdges(graph)) {
      const drawn = layout.get(node.id) ?? { x: 0, y: 0, w: 200, h: 49 };
      const place = dragged.get(node.id);
      const box = place ? { ...drawn, ...place } : drawn;
      const known = this.made.get(node.id);
      const placed = placedHandles(document, node.id);
      const handles = known && JSON.stringify(known.handles) === JSON.stringify(placed) ? known.handles : placed;
      const isSame = known?.node === node && known.handles === handles && known.isSelected === selected.has(node.id) && known.isFixed === isFixed && isSameBox(known.box, box);
      next.set(node.id, isSame ? known : { node, box, handles, isSelected: selected.has(node.id), isFixed, flow: flowNode(node, box, handles, selected.has(node.id), isFixed, known) });
    }
    this.made = next;
    this.nodes = unlessSame(this.nodes, [...next.values()].map(({ flow }) => flow));
    return this.nodes;
  }

  edgesOf(drawn: Drawn, selected: ReadonlySet<string>, taken: ReadonlyMap<string, number>, hasEnded: boolean): FlowEdge[] {
    this.edges = same(this.edges, flowEdges(drawn, selected, taken, hasEnded)) as FlowEdge[];
    return this.edges;
  }
}

function unlessSame<T>(before: T[], after: T[]): T[] {
  return after.length === before.length && after.every((each, place) => each === before[place]) ? before : after;
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

const inOrder = new WeakMap<Graph, readonly GraphNode[]>();

/** Return the nodes as Tab goes: from those that nothing leads to along the edges, containers before their bodies. */
function alongEdges(graph: Graph): readonly GraphNode[] {
  const known = inOrder.get(graph) ?? orderedAlongEdges(graph);
  inOrder.set(graph, known);
  return known;
}

function orderedAlongEdges(graph: Graph): readonly GraphNode[] {
  const byId = new Map(graph.nodes.map((node) => [node.id, node]));
  const entered = new Set(graph.edges.map((edge) => edge.to));
  const next = new Map<string, string[]>();
  for (const edge of graph.edges) next.set(edge.from, [...(next.get(edge.from) ?? []), edge.to]);
  const starts = new Map<string, string[]>();
  for (const node of graph.nodes) if (node.isStart && node.parent !== null) starts.set(node.parent, [...(starts.get(node.parent) ?? []), node.id]);
  const ordered = new Set<GraphNode>();
  const add = (node: GraphNode | undefined): void => {
    if (!node || ordered.has(node)) return;
    if (node.parent !== null) add(byId.get(node.parent));
    ordered.add(node);
    const children = starts.get(node.id) ?? [];
    for (const id of [...children, ...(next.get(node.id) ?? [])]) add(byId.get(id));
  };
  for (const node of graph.nodes) if (node.isStart && node.parent === null) add(node);
  for (const node of graph.nodes) if (!entered.has(node.id)) add(node);
  graph.nodes.forEach(add);
  return [...ordered];
}

export type FlowEdge = Edge<{ taken: number }>;

function flowEdges({ document, graph }: Drawn, selected: ReadonlySet<string>, taken: ReadonlyMap<string, number>, hasEnded: boolean): FlowEdge[] {
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
