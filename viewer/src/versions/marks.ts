/** A difference on one drawing: the nodes and edges of both documents, and what each mark means. */
import type { ChangeMark } from "../graph/canvas-drawing";
import type { Graph, GraphNode } from "../store/graph";
import { texts } from "../texts";
import type { DocumentDifference } from "./difference";

const t = texts.versions;

export const MARKS: Readonly<Record<"added" | "removed" | "changed" | "moved", ChangeMark>> = {
  added: { change: "added", word: t.kinds.added, icon: "+", tone: "green", border: "solid" },
  removed: { change: "removed", word: t.kinds.removed, icon: "−", tone: "red", border: "dashed" },
  changed: { change: "changed", word: t.kinds.changed, icon: "~", tone: "amber", border: "thick" },
  moved: { change: "moved", word: t.kinds.moved, icon: "↔", tone: "neutral", border: "dotted" },
};

/** Return the graph of B with what only A has; a removed node that would lie on another one is moved below it. */
export function unionGraph(a: Graph, b: Graph): Graph {
  const [idsB, edgesB] = [new Set(b.nodes.map((node) => node.id)), new Set(b.edges.map((edge) => edge.id))];
  const nodes = [...b.nodes];
  for (const node of a.nodes) if (!idsB.has(node.id)) nodes.push(freePlace(node, nodes));
  const ids = new Set(nodes.map((node) => node.id));
  const whole = nodes.map((node) => (node.parent !== null && !ids.has(node.parent) ? { ...node, parent: null } : node));
  return { drawn: a.drawn && b.drawn, nodes: whole, edges: [...b.edges, ...a.edges.filter((edge) => !edgesB.has(edge.id))] };
}

function freePlace(node: GraphNode, others: readonly GraphNode[]): GraphNode {
  const [width, height] = [node.w ?? 200, node.h ?? 49];
  const isTaken = (y: number): boolean =>
    others.some((other) => {
      const isContainer = other.id === node.parent || ["Iteration", "Loop"].includes(other.component);
      if (other.parent !== node.parent || isContainer || other.x === null || other.y === null || node.x === null) return false;
      return Math.abs(other.x - node.x) < width && y < other.y + (other.h ?? 49) && other.y < y + height;
    });
  let y = node.y;
  for (let tries = 0; y !== null && isTaken(y) && tries < 50; tries++) y += height + 20;
  return { ...node, y };
}

/** Return the marks of nodes; those that only moved have one if the layout is shown. */
export function nodeMarks({ nodes, moved }: DocumentDifference, showsLayout: boolean): ReadonlyMap<string, ChangeMark> {
  const marks = new Map<string, ChangeMark>(showsLayout ? moved.map(({ id }) => [id, MARKS.moved]) : []);
  for (const { id, kind } of nodes) marks.set(id, MARKS[kind]);
  return marks;
}

export function edgeMarks({ edges }: DocumentDifference): ReadonlyMap<string, "added" | "removed"> {
  return new Map(edges.map(({ edge, kind }) => [edge.id, kind]));
}
