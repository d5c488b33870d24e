import { expect, test } from "vitest";

import { distantDrawing, nodeAt, paint, type DistantLook } from "../src/graph/distant-drawing";
import { absoluteBoxes, boundsOf, drawnLayout } from "../src/graph/layout";
import type { Graph, GraphNode } from "../src/store/graph";

function node(id: string, x: number, y: number, fields: Partial<GraphNode> = {}): GraphNode {
  return { id, kind: "ragNode", component: "LLM", name: id, x, y, w: 100, h: 50, parent: null, branches: [], isStart: false, ...fields };
}

const GRAPH: Graph = {
  drawn: true,
  nodes: [
    node("inner", 30, 60, { parent: "outer" }),
    node("a", 0, 0),
    node("outer", 200, 100, { component: "Iteration", w: 300, h: 200 }),
  ],
  edges: [
    { id: "1", from: "a", to: "outer", branch: null, kind: "flow" },
    { id: "2", from: "a", to: "gone", branch: null, kind: "flow" },
    { id: "3", from: "a", to: "inner", branch: null, kind: "tool" },
  ],
};

/** A context of a canvas that notes what is filled. */
function recordingContext(): { context: CanvasRenderingContext2D; filled: number[][]; texts: string[] } {
  const filled: number[][] = [];
  const texts: string[] = [];
  const context = new Proxy({} as CanvasRenderingContext2D, {
    get: (_, name) => (name === "fillRect" ? (...box: number[]) => filled.push(box) : name === "fillText" ? (text: string) => texts.push(text) : () => undefined),
    set: () => true,
  });
  return { context, filled, texts };
}

const PLAIN = { icon: "✓", fill: "green", border: "green", dash: [], isSelected: false, state: "done" };
const EDGE = { colour: "ink-2", width: 2, dash: [] };

class FakePath {
  moveTo(): void {}
  bezierCurveTo(): void {}
}
Object.assign(globalThis, { Path2D: FakePath });

function painted(zoom: number, x = 0, y = 0, look: DistantLook = PLAIN): { filled: number[][]; texts: string[] } {
  const { context, filled, texts } = recordingContext();
  paint(context, distantDrawing(GRAPH, drawnLayout(GRAPH)), { x, y, zoom }, { width: 400, height: 300 }, () => look, () => EDGE, String);
  return { filled, texts };
}

test("boxes of nodes in a container are placed on the drawing as a whole", () => {
  expect(absoluteBoxes(GRAPH, drawnLayout(GRAPH)).get("inner")).toEqual({ x: 230, y: 160, w: 100, h: 50 });
});

test("a node with two looks is painted in two halves, each with its icon", () => {
  const { filled, texts } = painted(0.5, 0, 0, { ...PLAIN, other: { icon: "✗", fill: "red" } });

  expect(filled.filter(([x, y]) => y === 0 && (x ?? 0) < 50)).toEqual([[0, 0, 25, 25], [25, 0, 25, 25]]);
  expect(texts.filter((text) => text === "✗")).toHaveLength(GRAPH.nodes.length);
});

test("a node that is its own ancestor is placed all the same", () => {
  const graph: Graph = { ...GRAPH, nodes: [node("a", 1, 1, { parent: "b" }), node("b", 2, 2, { parent: "a" })] };

  expect([...absoluteBoxes(graph, new Map(graph.nodes.map(({ id }) => [id, { x: 1, y: 1, w: 1, h: 1 }]))).keys()].sort()).toEqual(["a", "b"]);
});

test("bounds hold every box, and there are none without boxes", () => {
  expect(boundsOf(absoluteBoxes(GRAPH, drawnLayout(GRAPH)).values())).toEqual({ x: 0, y: 0, w: 500, h: 300 });
  expect(boundsOf([])).toBeNull();
});

test("containers are painted before what lies in them, and edges without an end are left out", () => {
  const drawing = distantDrawing(GRAPH, drawnLayout(GRAPH));

  expect(drawing.nodes.map((each) => each.node.id)).toEqual(["outer", "inner", "a"]);
  expect(drawing.edges).toEqual([
    { id: "1", from: { x: 100, y: 25 }, to: { x: 200, y: 200 } },
    { id: "3", from: { x: 50, y: 50 }, to: { x: 280, y: 160 } },
  ]);
});

test("the node at a point is the innermost, and none beside all", () => {
  const drawing = distantDrawing(GRAPH, drawnLayout(GRAPH));

  expect(nodeAt(drawing, 240, 170)?.id).toBe("inner");
  expect(nodeAt(drawing, 210, 110)?.id).toBe("outer");
  expect(nodeAt(drawing, 150, 10)).toBeNull();
});

test("nodes are painted at their places, and with icons once these can be seen", () => {
  expect(painted(0.1)).toEqual({ filled: [[20, 10, 30, 20], [23, 16, 10, 5], [0, 0, 10, 5]], texts: [] });
  expect(painted(0.2).texts).toEqual(["✓", "✓", "✓"]);
});

test("nodes outside of the canvas are not painted", () => {
  expect(painted(0.1, -60).filled).toEqual([]);
  expect(painted(0.1, -21, 0).filled).toHaveLength(2);
});
