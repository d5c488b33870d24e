/** Where the nodes of a graph lie: as their author drew them, or laid out from left to right by dagre. */
import type { Graph, GraphNode } from "../store/graph";
import { groupBy } from "../store/groups";

export interface Box {
  /** Relative to the parent, if the node has one. */
  x: number;
  y: number;
  w: number;
  h: number;
}

export type Layout = ReadonlyMap<string, Box>;

const WIDTH = 200;
const HEIGHT = 49;
const BRANCH_HEIGHT = 20;
const GAP = { layers: 80, nodes: 60 };
const PADDING = { side: 30, top: 48 };
const CONTAINER = { w: 560, h: 260 };

/** Return the size of a node, without regard to what lies in it. */
export function sizeOf(node: GraphNode): { w: number; h: number } {
  const [w, h] = defaultSize(node);
  return { w: node.w ?? w, h: node.h ?? h };
}

function defaultSize(node: GraphNode): [number, number] {
  if (isContainer(node)) return [CONTAINER.w, CONTAINER.h];
  if (node.kind === "noteNode") return [240, 120];
  if (node.parent !== null && node.isStart) return [80, 45];
  return [WIDTH, HEIGHT + BRANCH_HEIGHT * Math.max(0, node.branches.length - 1)];
}

export function isContainer(node: GraphNode): boolean {
  return ["Iteration", "Loop"].includes(node.component) || ["iterationNode", "loopNode", "group"].includes(node.kind);
}

/** Return the layout of a drawing. A container without a size is as large as what lies in it needs. */
export function drawnLayout(graph: Graph): Layout {
  const layout = new Map<string, Box>();
  const byParent = groupBy(graph.nodes, (node) => node.parent);
  const place = (node: GraphNode): Box => {
    const known = layout.get(node.id);
    if (known) return known;
    const box = { x: node.x ?? 0, y: node.y ?? 0, ...sizeOf(node) };
    layout.set(node.id, box);
    const children = byParent.get(node.id) ?? [];
    if (children.length && node.w === null) box.w = 0;
    if (children.length && node.h === null) box.h = 0;
    for (const child of children) {
      const inner = place(child);
      if (node.w === null) box.w = Math.max(box.w, inner.x + inner.w + PADDING.side);
      if (node.h === null) box.h = Math.max(box.h, inner.y + inner.h + PADDING.side);
    }
    return box;
  };
  graph.nodes.forEach(place);
  return layout;
}

/** Return the boxes of all nodes on the drawing as a whole. */
export function absoluteBoxes(graph: Graph, layout: Layout): ReadonlyMap<string, Box> {
  const parents = new Map(graph.nodes.map((node) => [node.id, node.parent]));
  const boxes = new Map<string, Box>();
  const place = (id: string, depth: number): Box | undefined => {
    const known = boxes.get(id);
    const box = layout.get(id);
    if (known || !box) return known;
    const parent = parents.get(id);
    const outer = parent != null && depth < 20 ? place(parent, depth + 1) : undefined;
    const placed = outer ? { ...box, x: box.x + outer.x, y: box.y + outer.y } : box;
    boxes.set(id, placed);
    return placed;
  };
  for (const node of graph.nodes) place(node.id, 0);
  return boxes;
}

/** Return the smallest box around boxes; null if there are none. */
export function boundsOf(boxes: Iterable<Box>): Box | null {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const { x, y, w, h } of boxes) {
    left = Math.min(left, x);
    top = Math.min(top, y);
    right = Math.max(right, x + w);
    bottom = Math.max(bottom, y + h);
  }
  return left === Infinity ? null : { x: left, y: top, w: right - left, h: bottom - top };
}

/** Lay out a graph without a drawing: what lies in containers first. The same graph gives the same layout. */
export async function computedLayout(graph: Graph): Promise<Layout> {
  const dagre = await import("@dagrejs/dagre");
  const layout = new Map<string, Box>();
  const ids = new Set(graph.nodes.map((node) => node.id));
  const byParent = groupBy(graph.nodes, (node) => (node.parent !== null && ids.has(node.parent) ? node.parent : null));

  const layOut = (parent: string | null): { w: number; h: number } => {
    const nodes = byParent.get(parent) ?? [];
    const drawing = new dagre.graphlib.Graph({ multigraph: false });
    drawing.setGraph({ rankdir: "LR", ranker: "tight-tree", ranksep: GAP.layers, nodesep: GAP.nodes });
    drawing.setDefaultEdgeLabel(() => ({}));
    for (const node of nodes) {
      const size = byParent.has(node.id) ? layOut(node.id) : isContainer(node) ? CONTAINER : sizeOf(node);
      layout.set(node.id, { x: 0, y: 0, ...size });
      drawing.setNode(node.id, { width: size.w, height: size.h });
    }
    const own = new Set(nodes.map((node) => node.id));
    for (const edge of graph.edges) if (own.has(edge.from) && own.has(edge.to) && edge.from !== edge.to) drawing.setEdge(edge.from, edge.to);
    dagre.layout(drawing);
    const left = parent === null ? 0 : PADDING.side;
    const top = parent === null ? 0 : PADDING.top;
    let [w, h] = [0, 0];
    for (const node of nodes) {
      const box = layout.get(node.id);
      const at = drawing.node(node.id) as { x: number; y: number };
      if (!box) continue;
      box.x = Math.round(at.x - box.w / 2) + left;
      box.y = Math.round(at.y - box.h / 2) + top;
      w = Math.max(w, box.x + box.w + PADDING.side);
      h = Math.max(h, box.y + box.h + PADDING.side);
    }
    return { w, h };
  };
  layOut(null);
  return layout;
}
