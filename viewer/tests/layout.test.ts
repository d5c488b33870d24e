import { expect, test } from "vitest";

import { computedLayout, drawnLayout, type Box, type Layout } from "../src/graph/layout";
import type { Graph, GraphNode } from "../src/store/graph";
import { processorTime } from "./processor-time";

function node(id: string, fields: Partial<GraphNode> = {}): GraphNode {
  return { id, kind: "ragNode", component: "LLM", name: id, x: null, y: null, w: null, h: null, parent: null, branches: [], isStart: false, ...fields };
}

function graphOf(nodes: GraphNode[], ...edges: [string, string][]): Graph {
  return { drawn: false, nodes, edges: edges.map(([from, to]) => ({ id: `${from}>${to}`, from, to, branch: null, kind: "flow" })) };
}

const overlap = (a: Box, b: Box): boolean => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;

function overlaps(graph: Graph, layout: Layout): string[] {
  return graph.nodes.flatMap((a, index) =>
    graph.nodes.slice(index + 1).flatMap((b) => {
      const [one, other] = [layout.get(a.id), layout.get(b.id)];
      return a.parent === b.parent && one && other && overlap(one, other) ? [`${a.id} ${b.id}`] : [];
    }),
  );
}

const ITERATION = graphOf(
  [node("begin"), node("a"), node("b"), node("it", { component: "Iteration" }), node("i", { parent: "it", isStart: true }), node("x", { parent: "it" }), node("end")],
  ["begin", "a"], ["begin", "b"], ["a", "it"], ["b", "it"], ["i", "x"], ["it", "end"],
);

// T031
test("a computed layout has no overlap, goes to the right and holds children inside their parents", async () => {
  const layout = await computedLayout(ITERATION);

  expect(overlaps(ITERATION, layout)).toEqual([]);
  for (const { from, to } of ITERATION.edges) expect(layout.get(from)?.x).toBeLessThan(layout.get(to)?.x ?? 0);
  const [container, child] = [layout.get("it"), layout.get("x")];
  expect((child?.x ?? 0) + (child?.w ?? 0)).toBeLessThanOrEqual(container?.w ?? 0);
  expect((child?.y ?? 0) + (child?.h ?? 0)).toBeLessThanOrEqual(container?.h ?? 0);
});

// T031
test("the same graph gives the same layout, also one with a cycle", async () => {
  const cyclic = graphOf([node("a"), node("b"), node("c")], ["a", "b"], ["b", "c"], ["c", "a"], ["a", "a"]);

  expect(await computedLayout(cyclic)).toEqual(await computedLayout(cyclic));
  expect(overlaps(cyclic, await computedLayout(cyclic))).toEqual([]);
});

test("1,000 nodes are laid out within five seconds", async () => {
  const nodes = Array.from({ length: 1000 }, (_, at) => node(`n${at}`));
  const edges = nodes.slice(1).map((each, at): [string, string] => [`n${at - (at % 7)}`, each.id]);
  const began = processorTime();

  await computedLayout(graphOf(nodes, ...edges));

  expect(processorTime() - began).toBeLessThan(5000);
});

// T030
test("a drawing keeps its places, and a container without a size holds its children", () => {
  const drawn = { ...graphOf([node("c", { component: "Loop", x: 10, y: 20 }), node("x", { parent: "c", x: 100, y: 60 }), node("s", { x: 0, y: 0, w: 50, h: 30 })]), drawn: true };
  const layout = drawnLayout(drawn);

  expect(layout.get("s")).toEqual({ x: 0, y: 0, w: 50, h: 30 });
  expect(layout.get("c")).toEqual({ x: 10, y: 20, w: 330, h: 139 });
});
