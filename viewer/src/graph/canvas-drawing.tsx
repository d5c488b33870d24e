/** The drawing of a graph without a run: nodes that can be selected, with marks of what has changed. */
import { useMemo, type ReactNode } from "react";

import type { Graph } from "../store/graph";
import type { Look } from "../store/run-status";
import { texts } from "../texts";
import { visibleName } from "../ui/visible-text";
import { MarkedDrawing, type EdgeMark, type NodeMark } from "./marked-drawing";

/** How a node differs. */
export interface ChangeMark extends Look {
  /** For tests: `data-change`. */
  change: string;
}

interface Props {
  graph: Graph;
  /** The marks of nodes by id. */
  marks?: ReadonlyMap<string, ChangeMark>;
  /** The marks of edges by id. */
  edgeMarks?: ReadonlyMap<string, "added" | "removed">;
  selected: string | null;
  onSelect: (nodeId: string | null) => void;
}

const SIGNS = { added: "+", removed: "−" } as const;

export default function CanvasDrawing({ graph, marks, edgeMarks, selected, onSelect }: Props): ReactNode {
  const nodes = useMemo(() => nodeMarks(graph, marks, selected), [graph, marks, selected]);
  const edges = useMemo(() => marksOfEdges(graph, edgeMarks), [graph, edgeMarks]);
  return <MarkedDrawing graph={graph} marks={nodes} edgeMarks={edges} onNode={(id) => onSelect(id === selected ? null : id)} onClear={() => onSelect(null)} />;
}

function nodeMarks(graph: Graph, marks: Props["marks"], selected: string | null): ReadonlyMap<string, NodeMark> {
  return new Map(
    graph.nodes.map((node): [string, NodeMark] => {
      const mark = marks?.get(node.id);
      const data = { "data-testid": "node", "data-node-id": node.id, "data-state": "pending", "data-counts": "{}", ...(mark ? { "data-change": mark.change } : {}) };
      return [node.id, { looks: mark ? [mark] : [], detail: visibleName(node.component, 40), words: mark?.word ?? "", isSelected: node.id === selected, isActive: true, data }];
    }),
  );
}

function marksOfEdges(graph: Graph, marks: Props["edgeMarks"]): ReadonlyMap<string, EdgeMark> {
  const names = new Map(graph.nodes.map((node) => [node.id, visibleName(node.name, 80)]));
  return new Map(
    graph.edges.map((edge): [string, EdgeMark] => {
      const mark = marks?.get(edge.id);
      const words = `${names.get(edge.from) ?? ""} → ${names.get(edge.to) ?? ""}${mark ? `, ${texts.versions.kinds[mark]}` : ""}`;
      return [edge.id, { label: mark ? SIGNS[mark] : "", className: mark ? `edge-${mark}` : "", words, data: { "data-taken": 0, ...(mark ? { "data-change": mark } : {}) } }];
    }),
  );
}
