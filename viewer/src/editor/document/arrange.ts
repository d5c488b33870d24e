/** Where nodes lie: aligning a selection, and laying it out anew. */
import { computedLayout, drawnLayout, isContainer, type Layout } from "../../graph/layout";
import { placeNodes, Refusal } from "./commands";
import { graphOf, nodesOf, withPlaces, type Document } from "./document";

export const ALIGNMENTS = ["left", "center", "right", "top", "middle", "bottom"] as const;
export type Alignment = (typeof ALIGNMENTS)[number];

/** Align nodes of one container. */
export function alignNodes(document: Document, ids: readonly string[], alignment: Alignment): Document {
  const nodes = ids.flatMap((id) => nodesOf(document).get(id) ?? []);
  if (nodes.length < 2) throw new Refusal("Select two nodes or more to align them.");
  if (new Set(nodes.map((node) => node.parent)).size > 1) throw new Refusal("These nodes lie in different containers, so they are not aligned.");
  const layout = drawnLayout(graphOf(document));
  const boxes = nodes.map((node) => ({ id: node.id, ...(layout.get(node.id) ?? { x: 0, y: 0, w: 0, h: 0 }) }));
  const [left, top] = [Math.min(...boxes.map((box) => box.x)), Math.min(...boxes.map((box) => box.y))];
  const [right, bottom] = [Math.max(...boxes.map((box) => box.x + box.w)), Math.max(...boxes.map((box) => box.y + box.h))];
  const places = boxes.map(({ id, x, y, w, h }): [string, { x: number; y: number }] => {
    switch (alignment) {
      case "left":
        return [id, { x: left, y }];
      case "center":
        return [id, { x: (left + right - w) / 2, y }];
      case "right":
        return [id, { x: right - w, y }];
      case "top":
        return [id, { x, y: top }];
      case "middle":
        return [id, { x, y: (top + bottom - h) / 2 }];
      case "bottom":
        return [id, { x, y: bottom - h }];
    }
  });
  return placeNodes(document, new Map(places));
}

/** Lay out the whole drawing, or a selection at its place, from left to right. The same drawing gives the same layout. */
export async function tidy(document: Document, ids: readonly string[] = []): Promise<Document> {
  const graph = graphOf(document);
  const chosen = new Set(ids);
  if (chosen.size < 2) return withPlaces(document, graph, await computedLayout(withoutSizes(graph)));
  for (const id of chosen) for (const node of graph.nodes) if (node.parent === id) chosen.add(node.id);
  const nodes = graph.nodes.filter((node) => chosen.has(node.id));
  const part = { drawn: false, nodes, edges: graph.edges.filter((edge) => chosen.has(edge.from) && chosen.has(edge.to)) };
  const computed = await computedLayout(withoutSizes(part));
  const before = drawnLayout(graph);
  const outer = nodes.filter((node) => node.parent === null || !chosen.has(node.parent)).map((node) => node.id);
  const corner = (layout: Layout): [number, number] => [Math.min(...outer.map((id) => layout.get(id)?.x ?? 0)), Math.min(...outer.map((id) => layout.get(id)?.y ?? 0))];
  const [[x, y], [fromX, fromY]] = [corner(before), corner(computed)];
  const moved = new Map([...computed].map(([id, box]) => [id, outer.includes(id) ? { ...box, x: box.x + x - fromX, y: box.y + y - fromY } : box]));
  return withPlaces(document, part, moved);
}

/** A container is as large as its body needs. */
function withoutSizes(graph: ReturnType<typeof graphOf>): ReturnType<typeof graphOf> {
  return { ...graph, nodes: graph.nodes.map((node) => (isContainer(node) ? { ...node, w: null, h: null } : node)) };
}
