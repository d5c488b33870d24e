/** One drawing of both runs: each node with two halves, and the edges that only one run has followed. */
import { useMemo, type ReactNode } from "react";

import { edgeClass } from "../graph/drawing";
import { MarkedDrawing, type EdgeMark, type NodeMark } from "../graph/marked-drawing";
import { stepToShow } from "../graph/node-facts";
import { takenEdges } from "../store/edges";
import type { Graph, GraphEdge } from "../store/graph";
import { NODE_LOOKS, nodeState } from "../store/node-states";
import type { RunState } from "../store/run";
import { isOver, type Look } from "../store/run-status";
import { texts } from "../texts";
import { duration } from "../ui/format";
import { Empty } from "../ui/parts";
import { visibleName, visibleText } from "../ui/visible-text";
import { useBothRuns } from "./use-comparison";

const t = texts.compare;
const NOT_THERE: Look = { word: t.notThere, icon: "∅", tone: "muted", border: "none" };

type Runs = readonly [RunState, RunState];

interface Props {
  a: string;
  b: string;
  selected: string | null;
  onSelect: (stepId: string) => void;
}

export function GraphView({ a, b, selected, onSelect }: Props): ReactNode {
  const { runs, error } = useBothRuns(a, b);
  if (error) {
    return (
      <p role="alert" className="p-4 text-red">
        {visibleText(error.message)}
      </p>
    );
  }
  return runs ? <BothGraphs runs={runs} selected={selected} onSelect={onSelect} /> : <Empty>{t.graphLoading}</Empty>;
}

function BothGraphs({ runs, selected, onSelect }: Pick<Props, "selected" | "onSelect"> & { runs: Runs }): ReactNode {
  const graph = useMemo(() => joinedGraph(runs), [runs]);
  const marks = useMemo(() => (graph ? nodeMarks(graph, runs, selected) : new Map<string, NodeMark>()), [graph, runs, selected]);
  const edges = useMemo(() => (graph ? edgeMarks(graph, runs) : new Map<string, EdgeMark>()), [graph, runs]);
  if (!graph?.nodes.length) return <Empty>{t.noGraph}</Empty>;
  const choose = (nodeId: string): void => {
    const step = stepToShow(runs[0], nodeId) ?? stepToShow(runs[1], nodeId);
    if (step !== null) onSelect(step);
  };
  const labels = { drawing: t.region, nodes: t.nodes, edges: t.edgesOf };
  return <MarkedDrawing graph={graph} labels={labels} hint={t.legendOfGraph} marks={marks} edgeMarks={edges} onNode={choose} />;
}

/** Return the graph of A with what only the graph of B has. The page lays it out anew if B adds nodes. */
export function joinedGraph([{ graph: a }, { graph: b }]: Runs): Graph | null {
  if (!a || !b) return a ?? b;
  const nodes = new Set(a.nodes.map((node) => node.id));
  const edges = new Set(a.edges.map(edgeKey));
  const added = b.nodes.filter((node) => !nodes.has(node.id));
  return {
    drawn: a.drawn && (!added.length || b.drawn) && !overlap(a, added),
    nodes: [...a.nodes, ...added],
    edges: [...a.edges, ...b.edges.filter((edge) => !edges.has(edgeKey(edge))).map((edge) => ({ ...edge, id: `b ${edge.id}` }))],
  };
}

/** Whether nodes of the other drawing would lie on nodes of this one. */
function overlap(graph: Graph, added: readonly Graph["nodes"][number][]): boolean {
  return added.some((node) => graph.nodes.some((each) => each.parent === node.parent && each.x === node.x && each.y === node.y));
}

function edgeKey(edge: GraphEdge): string {
  return JSON.stringify([edge.from, edge.to, edge.branch, edge.kind]);
}

function nodeMarks(graph: Graph, runs: Runs, selected: string | null): Map<string, NodeMark> {
  const chosen = selected === null ? undefined : (runs[0].steps.find(selected) ?? runs[1].steps.find(selected))?.nodeId;
  const shown = graph.nodes.filter((node) => node.kind !== "noteNode");
  const [inA, inB] = runs.map((run) => new Set(run.graph?.nodes.map((node) => node.id)));
  return new Map(
    shown.map((node) => {
      const has = [inA?.has(node.id) ?? false, inB?.has(node.id) ?? false];
      const looks = runs.map((run, place) => (has[place] ? NODE_LOOKS[nodeState(run, node.id)] : NOT_THERE));
      const [a = NOT_THERE, b = NOT_THERE] = looks;
      const times = runs.map((run) => run.nodes.get(node.id)?.workMs ?? 0);
      const detail = times.some(Boolean) ? times.map((ms) => (ms ? duration(ms) : "–")).join(" / ") : "";
      const data = {
        "data-testid": "node",
        "data-node-id": node.id,
        "data-state-a": has[0] ? nodeState(runs[0], node.id) : "none",
        "data-state-b": has[1] ? nodeState(runs[1], node.id) : "none",
      };
      return [
        node.id,
        { looks: [a, b], detail, words: `A ${a.word}, B ${b.word}`, isSelected: node.id === chosen, isActive: runs.some((run) => run.nodes.has(node.id)), data },
      ];
    }),
  );
}

function edgeMarks(graph: Graph, runs: Runs): Map<string, EdgeMark> {
  const names = new Map(graph.nodes.map((node) => [node.id, visibleName(node.name, 80)]));
  const taken = runs.map((run) => {
    const byId = takenEdges(run);
    return new Map(run.graph?.edges.map((edge) => [edgeKey(edge), byId.get(edge.id) ?? 0]));
  });
  const areOver = runs.every((run) => isOver(run.header?.status ?? ""));
  return new Map(
    graph.edges.map((edge) => {
      const [a = 0, b = 0] = taken.map((counts) => counts.get(edgeKey(edge)) ?? 0);
      const label = a && !b ? "A" : b && !a ? "B" : "";
      const className = edgeClass(edge, a + b, areOver);
      const words = t.edge(names.get(edge.from) ?? "", names.get(edge.to) ?? "", a, b);
      return [edge.id, { label, className, words, data: { "data-mark": label, "data-taken-a": a, "data-taken-b": b } }];
    }),
  );
}
