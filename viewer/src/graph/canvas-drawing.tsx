/** The drawing of a graph without a run: nodes that can be selected, with marks, for example of what differs. */
import { ReactFlow, ReactFlowProvider, useReactFlow, useStore, type Edge, type NodeProps } from "@xyflow/react";
import { createContext, memo, use, useCallback, useEffect, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from "react";

import type { Graph, GraphNode } from "../store/graph";
import type { Look } from "../store/run-status";
import { texts } from "../texts";
import { Button, Empty, StateBadge } from "../ui/parts";
import { useWidth } from "../ui/use-width";
import { visibleName } from "../ui/visible-text";
import { absoluteBox, FIT } from "./camera";
import { branchLabel, flowNodes, handleIds, Handles, neighbour, SMALL_ZOOM, type RunNode } from "./drawing";
import { useLayout } from "./graph-pane";
import type { Layout } from "./layout";

const t = texts.graph;
const PLAIN: Look = { word: "", icon: "", tone: "neutral", border: "solid" };

export interface NodeMark extends Look {
  /** What the mark says, for tests: `data-change`. */
  change: string;
}

interface Props {
  graph: Graph;
  /** The marks of nodes by id. */
  marks?: ReadonlyMap<string, NodeMark>;
  /** The marks of edges by id. */
  edgeMarks?: ReadonlyMap<string, "added" | "removed">;
  selected: string | null;
  onSelect: (nodeId: string | null) => void;
}

type Direction = "next" | "previous" | "up" | "down";

interface Marks {
  marks: ReadonlyMap<string, NodeMark>;
  selected: string | null;
  onSelect: (nodeId: string | null) => void;
  walk: (from: string, direction: Direction) => void;
}

const NO_MARKS: ReadonlyMap<string, NodeMark> = new Map();
const NO_EDGE_MARKS: ReadonlyMap<string, "added" | "removed"> = new Map();
const MarksContext = createContext<Marks>({ marks: NO_MARKS, selected: null, onSelect: () => undefined, walk: () => undefined });
const nodeTypes = { step: memo(OrdinaryNode), container: memo(ContainerNode), note: memo(NoteNode) };

export default function CanvasDrawing(props: Props): ReactNode {
  const { graph } = props;
  const [isList, setList] = useState(false);
  const layout = useLayout(graph);
  if (!graph.nodes.length) return <Empty>{t.none}</Empty>;
  return (
    <div className="relative flex min-h-0 min-w-0 flex-1 flex-col">
      <div className="absolute top-2 left-2 z-10 flex items-center gap-2">
        <Button aria-pressed={isList} onClick={() => setList(!isList)}>
          {t.list}
        </Button>
        {graph.drawn || isList ? null : <span className="rounded bg-surface/90 px-1 text-ink-2">{t.laidOut}</span>}
      </div>
      {isList ? (
        <MarkedList {...props} />
      ) : layout ? (
        <ReactFlowProvider>
          <Flow {...props} layout={layout} />
        </ReactFlowProvider>
      ) : (
        <Empty>{t.layingOut}</Empty>
      )}
    </div>
  );
}

function Flow({ graph, layout, marks = NO_MARKS, edgeMarks = NO_EDGE_MARKS, selected, onSelect }: Props & { layout: Layout }): ReactNode {
  const nodes = useMemo(() => flowNodes(graph, layout), [graph, layout]);
  const edges = useMemo(() => flowEdges(graph, edgeMarks), [graph, edgeMarks]);
  const { fitView, zoomIn, zoomOut, setCenter } = useReactFlow();
  const pane = useRef<HTMLElement>(null);
  const hasMoved = useRef(false);
  const width = useWidth(pane);
  useEffect(() => {
    if (width && !hasMoved.current) void fitView(FIT);
  }, [width, fitView]);

  const walk = useCallback(
    (from: string, direction: Direction) => {
      const target = neighbour(graph, layout, from, direction);
      const box = target === undefined ? undefined : absoluteBox(graph, layout, target);
      if (target === undefined || !box) return;
      const button = document.querySelector<HTMLElement>(`[data-focus="${CSS.escape(target)}"]`);
      if (button) button.focus();
      else void setCenter(box.x + box.w / 2, box.y + box.h / 2, { zoom: 1 });
    },
    [graph, layout, setCenter],
  );
  const context = useMemo(() => ({ marks, selected, onSelect, walk }), [marks, selected, onSelect, walk]);
  const zoom = (change: () => Promise<boolean>): void => {
    hasMoved.current = true;
    void change();
  };
  return (
    <section ref={pane} aria-label={t.region} className="min-h-0 flex-1">
      <MarksContext value={context}>
        <ReactFlow
          nodes={nodes}
          edges={edges}
          nodeTypes={nodeTypes}
          fitView
          fitViewOptions={FIT}
          minZoom={0.03}
          maxZoom={2}
          nodesDraggable={false}
          nodesConnectable={false}
          nodesFocusable={false}
          edgesFocusable={false}
          elementsSelectable={false}
          onMoveStart={(event) => {
            if (event) hasMoved.current = true;
          }}
          zoomOnDoubleClick={false}
          disableKeyboardA11y
          onPaneClick={() => onSelect(null)}
          onNodeClick={(event, node) => {
            if (!(event.target as Element).closest("button")) onSelect(node.id);
          }}
          deleteKeyCode={null}
          selectionKeyCode={null}
          multiSelectionKeyCode={null}
          panActivationKeyCode={null}
        />
      </MarksContext>
      <div className="absolute right-2 bottom-6 z-10 flex gap-1">
        <Button aria-label={t.zoomOut} onClick={() => zoom(zoomOut)}>
          −
        </Button>
        <Button aria-label={t.zoomIn} onClick={() => zoom(zoomIn)}>
          +
        </Button>
        <Button
          onClick={() => {
            hasMoved.current = false;
            void fitView(FIT);
          }}
        >
          {t.fit}
        </Button>
      </div>
      <EdgeList graph={graph} edgeMarks={edgeMarks} />
    </section>
  );
}

function flowEdges(graph: Graph, edgeMarks: ReadonlyMap<string, "added" | "removed">): Edge[] {
  const ids = new Set(graph.nodes.map((node) => node.id));
  return graph.edges
    .filter((edge) => ids.has(edge.from) && ids.has(edge.to))
    .map((edge) => {
      const mark = edgeMarks.get(edge.id);
      const label = [mark === "added" ? "+" : mark === "removed" ? "−" : "", branchLabel(graph, edge) ?? ""].filter(Boolean).join(" ");
      const className = mark ? `edge-${mark}` : edge.kind === "agent" || edge.kind === "tool" ? "edge-static" : edge.kind === "exception" ? "edge-exception" : "";
      return {
        id: edge.id,
        source: edge.from,
        target: edge.to,
        ...handleIds(edge),
        className,
        ...(label ? { label, labelStyle: { fill: "var(--ink-2)", fontSize: 11 }, labelBgStyle: { fill: "var(--surface)" } } : {}),
      };
    });
}

// -- nodes -------------------------------------------------------------------------------------------------------------
function useMark(node: GraphNode) {
  const { marks, selected, onSelect, walk } = use(MarksContext);
  const mark = marks.get(node.id);
  const look = mark ?? PLAIN;
  const onKeyDown = (event: KeyboardEvent): void => {
    const direction = ({ ArrowRight: "next", ArrowLeft: "previous", ArrowUp: "up", ArrowDown: "down" } as const)[event.key];
    if (!direction) return;
    event.preventDefault();
    walk(node.id, direction);
  };
  return {
    look,
    name: visibleName(node.name, 120),
    isSelected: selected === node.id,
    attributes: {
      "data-testid": "node",
      "data-node-id": node.id,
      "data-state": "pending",
      "data-counts": "{}",
      "data-tone": look.tone,
      "data-border": look.border,
      ...(mark ? { "data-change": mark.change } : {}),
    },
    button: { "data-focus": node.id, "aria-pressed": selected === node.id, onKeyDown, onClick: () => onSelect(selected === node.id ? null : node.id) },
  };
}

function Name({ node, look }: { node: GraphNode; look: Look }): ReactNode {
  return (
    <>
      <bdi>{visibleName(node.name, 120)}</bdi>
      {look.word ? <span className="sr-only">, {look.word}</span> : null}
    </>
  );
}

function Icon({ look }: { look: Look }): ReactNode {
  return look.icon ? (
    <span aria-hidden="true" className="flex h-7 min-w-7 shrink-0 items-center justify-center rounded bg-tone-soft px-0.5 text-base font-semibold text-tone">
      {look.icon}
    </span>
  ) : null;
}

function OrdinaryNode({ data: { node, handles } }: NodeProps<RunNode>): ReactNode {
  const { look, isSelected, attributes, button } = useMark(node);
  const isSmall = useStore((state) => state.transform[2] < SMALL_ZOOM);
  const isTiny = node.parent !== null && node.isStart;
  return (
    <div {...attributes} className={`h-full w-full rounded-md bg-surface ${isSelected ? "ring-2 ring-accent ring-offset-1" : ""}`}>
      <Handles handles={handles} />
      <button type="button" {...button} className={`nopan pointer-events-auto flex h-full w-full items-center gap-1.5 overflow-hidden rounded-md px-1.5 text-left ${isSmall ? "bg-tone-soft" : ""}`}>
        {isTiny && !look.icon ? null : <Icon look={look} />}
        <span className={isTiny ? "sr-only" : isSmall ? "line-clamp-2 text-[20px] leading-[21px] font-medium" : "min-w-0 flex-1 leading-tight"}>
          <span className={isSmall ? "" : "block truncate font-medium"}>
            <Name node={node} look={look} />
          </span>
          {isSmall ? null : <span className="block truncate text-[11px] text-ink-2">{visibleName(node.component, 40)}</span>}
        </span>
      </button>
    </div>
  );
}

function ContainerNode({ data: { node, handles } }: NodeProps<RunNode>): ReactNode {
  const { look, isSelected, attributes, button } = useMark(node);
  return (
    <div {...attributes} className={`h-full w-full rounded-lg bg-panel/60 ${isSelected ? "ring-2 ring-accent ring-offset-1" : ""}`}>
      <Handles handles={handles} />
      <button type="button" {...button} className="nopan pointer-events-auto flex h-9 max-w-full items-center gap-1.5 rounded px-2 text-left">
        <Icon look={look} />
        <span className="truncate font-medium">
          <Name node={node} look={look} />
        </span>
        <span className="shrink-0 text-[11px] text-ink-2">{visibleName(node.component, 40)}</span>
      </button>
    </div>
  );
}

function NoteNode({ data: { node, handles } }: NodeProps<RunNode>): ReactNode {
  const { look, attributes } = useMark(node);
  return (
    <div {...attributes} data-tone={look.icon ? look.tone : "amber"} className="h-full w-full overflow-hidden rounded border border-line bg-tone-soft p-2 text-ink">
      <Handles handles={handles} />
      <span aria-hidden="true">{look.icon ? `${look.icon} ` : ""}</span>
      {visibleName(node.name, 300)}
    </div>
  );
}

// -- the same as lists -------------------------------------------------------------------------------------------------
function MarkedList({ graph, marks = NO_MARKS, selected, onSelect }: Props): ReactNode {
  return (
    <ul aria-label={t.nodes} className="min-h-0 flex-1 overflow-auto px-3 pt-12 pb-3">
      {graph.nodes.map((node) => {
        const mark = marks.get(node.id);
        return (
          <li
            key={node.id}
            data-testid="node"
            data-node-id={node.id}
            data-state="pending"
            data-counts="{}"
            {...(mark ? { "data-change": mark.change } : {})}
            className="flex flex-wrap items-center gap-2 border-b border-line py-1"
            style={{ paddingLeft: node.parent === null ? 0 : 20 }}
          >
            {mark ? <StateBadge look={mark} /> : null}
            <button type="button" aria-pressed={selected === node.id} className="min-h-6 text-accent underline" onClick={() => onSelect(node.id)}>
              <bdi>{visibleName(node.name, 120)}</bdi>
            </button>
            <span className="text-ink-2">{visibleName(node.component, 40)}</span>
          </li>
        );
      })}
    </ul>
  );
}

function EdgeList({ graph, edgeMarks }: { graph: Graph; edgeMarks: ReadonlyMap<string, "added" | "removed"> }): ReactNode {
  const names = useMemo(() => new Map(graph.nodes.map((node) => [node.id, visibleName(node.name, 80)])), [graph]);
  return (
    <ul aria-label={t.edges} className="sr-only">
      {graph.edges.map((edge) => {
        const mark = edgeMarks.get(edge.id);
        return (
          <li key={edge.id} data-testid="edge" data-edge={`${edge.from}>${edge.to}`} data-taken={0} {...(mark ? { "data-change": mark } : {})}>
            {`${names.get(edge.from) ?? ""} → ${names.get(edge.to) ?? ""}${mark ? `, ${texts.versions.kinds[mark]}` : ""}`}
          </li>
        );
      })}
    </ul>
  );
}
