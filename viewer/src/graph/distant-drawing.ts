/** A large drawing seen from afar: boxes and edges for one canvas, which is painted whole at each change. */
import type { Graph, GraphNode } from "../store/graph";
import { absoluteBoxes, isContainer, type Box, type Layout } from "./layout";

/** An icon on a colour, by its name in tokens.css. */
export interface DistantHalf {
  icon: string;
  fill: string;
}

/** What a node looks like from afar. */
export interface DistantLook extends DistantHalf {
  /** The right half, of a node with two looks. */
  other?: DistantHalf;
  border: string;
  dash: readonly number[];
  isSelected: boolean;
  /** The state in a word, for the counts that tests read. */
  state: string;
}

/** How an edge is drawn: the name of its colour, its width in pixels and its dashes. */
export interface EdgeLook {
  colour: string;
  width: number;
  dash: readonly number[];
}

export interface Viewport {
  x: number;
  y: number;
  zoom: number;
}

interface PlacedNode {
  node: GraphNode;
  box: Box;
  isContainer: boolean;
}

interface PlacedEdge {
  id: string;
  from: { x: number; y: number };
  to: { x: number; y: number };
}

/** Nodes, parents before what lies in them, and edges, all in coordinates of the whole drawing. */
export interface DistantDrawing {
  nodes: readonly PlacedNode[];
  edges: readonly PlacedEdge[];
}

const ICON_ZOOM = 0.12; // below it an icon is smaller than a letter can be read
const LEAST_BOX = 3; // pixels
const LEAST_LINE = 0.75; // pixels

export function distantDrawing(graph: Graph, layout: Layout): DistantDrawing {
  const boxes = absoluteBoxes(graph, layout);
  const nodes = graph.nodes.flatMap((node) => {
    const box = boxes.get(node.id);
    return box ? [{ node, box, isContainer: isContainer(node) }] : [];
  });
  const edges = graph.edges.flatMap((edge) => {
    const [from, to] = [boxes.get(edge.from), boxes.get(edge.to)];
    if (!from || !to) return [];
    const isBelow = edge.kind === "agent" || edge.kind === "tool";
    return [{
      id: edge.id,
      from: isBelow ? { x: from.x + from.w / 2, y: from.y + from.h } : { x: from.x + from.w, y: from.y + from.h / 2 },
      to: isBelow ? { x: to.x + to.w / 2, y: to.y } : { x: to.x, y: to.y + to.h / 2 },
    }];
  });
  const larger = (a: PlacedNode, b: PlacedNode): number => b.box.w * b.box.h - a.box.w * a.box.h;
  return { nodes: nodes.sort((a, b) => Number(b.isContainer) - Number(a.isContainer) || (a.isContainer ? larger(a, b) : 0)), edges };
}

/** Return the node at a point of the drawing; the innermost, where one lies in another. */
export function nodeAt(drawing: DistantDrawing, x: number, y: number): GraphNode | null {
  const found = drawing.nodes.findLast(({ box }) => x >= box.x && x <= box.x + box.w && y >= box.y && y <= box.y + box.h);
  return found?.node ?? null;
}

/** Paint the part of a drawing that a canvas of so many pixels shows. */
export function paint(
  context: CanvasRenderingContext2D,
  drawing: DistantDrawing,
  { x, y, zoom }: Viewport,
  size: { width: number; height: number },
  lookOf: (nodeId: string) => DistantLook,
  edgeLookOf: (edgeId: string) => EdgeLook,
  colourOf: (name: string) => string,
): void {
  context.clearRect(0, 0, size.width, size.height);
  const isShown = (left: number, top: number, right: number, bottom: number): boolean =>
    right * zoom + x >= 0 && bottom * zoom + y >= 0 && left * zoom + x <= size.width && top * zoom + y <= size.height;

  const paths = new Map<string, { look: EdgeLook; path: Path2D }>();
  for (const { id, from, to } of drawing.edges) {
    if (!isShown(Math.min(from.x, to.x), Math.min(from.y, to.y), Math.max(from.x, to.x), Math.max(from.y, to.y))) continue;
    const look = edgeLookOf(id);
    const key = `${look.colour} ${look.width} ${look.dash.join()}`;
    const known = paths.get(key) ?? { look, path: new Path2D() };
    paths.set(key, known);
    const bend = to.x >= from.x ? (to.x - from.x) / 2 : 6.25 * Math.sqrt(from.x - to.x); // as xyflow bends its edges
    known.path.moveTo(from.x * zoom + x, from.y * zoom + y);
    known.path.bezierCurveTo(
      (from.x + bend) * zoom + x, from.y * zoom + y, (to.x - bend) * zoom + x, to.y * zoom + y, to.x * zoom + x, to.y * zoom + y,
    );
  }
  for (const { look, path } of paths.values()) {
    context.strokeStyle = colourOf(look.colour);
    context.lineWidth = Math.max(LEAST_LINE, look.width * zoom);
    context.setLineDash([...look.dash]);
    context.stroke(path);
  }

  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = `${30 * zoom}px sans-serif`;
  for (const { node, box, isContainer: isOuter } of drawing.nodes) {
    if (!isShown(box.x, box.y, box.x + box.w, box.y + box.h)) continue;
    const look = lookOf(node.id);
    const [left, top] = [box.x * zoom + x, box.y * zoom + y];
    const [width, height] = [Math.max(LEAST_BOX, box.w * zoom), Math.max(LEAST_BOX, box.h * zoom)];
    const halves = look.other ? [look, look.other] : [look];
    const share = width / halves.length;
    for (const [place, half] of halves.entries()) {
      context.fillStyle = colourOf(isOuter ? "panel" : half.fill);
      context.fillRect(left + place * share, top, share, height);
    }
    context.setLineDash([...look.dash]);
    context.lineWidth = look.isSelected ? 3 : 1;
    context.strokeStyle = colourOf(look.isSelected ? "accent" : look.border);
    context.strokeRect(left, top, width, height);
    if (zoom < ICON_ZOOM) continue;
    for (const [place, half] of halves.entries()) {
      context.fillStyle = colourOf(isOuter || half.fill === "surface" ? look.border : "surface");
      const middle = isOuter ? (18 + 36 * place) * zoom : (place + 0.5) * share;
      context.fillText(half.icon, left + middle, top + (isOuter ? 18 * zoom : height / 2));
    }
  }
  context.setLineDash([]);
}
