/** A drawing, or the same as a list, whose nodes and edges have marks of their own: what pages show that do not show the states of one run. */
import { ReactFlow, ReactFlowProvider, useReactFlow, useStore, type Edge, type NodeProps } from "@xyflow/react";
import { createContext, memo, use, useCallback, useEffect, useId, useMemo, useRef, useState, type KeyboardEvent, type MouseEvent, type ReactNode } from "react";

import type { Graph } from "../store/graph";
import type { Look } from "../store/run-status";
import { texts } from "../texts";
import { Button, Empty } from "../ui/parts";
import { useWidth } from "../ui/use-width";
import { visibleName } from "../ui/visible-text";
import { absoluteBox, FIT, useFit } from "./camera";
import { distantDrawing, nodeAt } from "./distant-drawing";
import { distantLook, DistantView } from "./distant-view";
import { branchLabel, DISTANT, edgeClass, flowNodes, handleIds, Handles, MANY_NODES, neighbour, SMALL_ZOOM, type RunNode } from "./drawing";
import { useLayout } from "./graph-pane";
import { absoluteBoxes, boundsOf, isContainer, type Layout } from "./layout";
import { MarkedList } from "./marked-list";

const t = texts.graph;
const FOCUS_ZOOM = 0.6;

/** What is shown about a node. With two looks it has two halves. */
export interface NodeMark {
  looks: readonly [] | readonly [Look] | readonly [Look, Look];
  /** A second line, for example counts. */
  detail: string;
  /** What a screen reader says after the name. */
  words: string;
  isSelected: boolean;
  /** Whether a click does something. */
  isActive: boolean;
  data: Readonly<Record<`data-${string}`, string>>;
}

export interface EdgeMark {
  /** A letter on the edge. */
  label: string;
  className: string;
  words: string;
  data: Readonly<Record<`data-${string}`, string | number>>;
}

interface Props {
  graph: Graph | null;
  /** Names of the drawing and of the lists of nodes and edges. */
  labels?: { drawing: string; nodes: string; edges: string };
  /** What stands beside the button that shows the list. */
  hint?: ReactNode;
  marks: ReadonlyMap<string, NodeMark>;
  /** Marks by the id of the edge. */
  edgeMarks?: ReadonlyMap<string, EdgeMark>;
  /** A node in the middle at first, where the whole drawing would be too small to read. */
  focus?: string;
  onNode: (nodeId: string) => void;
  /** A click beside the nodes. */
  onClear?: () => void;
}

type FlowProps = Props & { graph: Graph; layout: Layout };

interface Marks {
  marks: ReadonlyMap<string, NodeMark>;
  onNode: (nodeId: string) => void;
  walk: (from: string, event: KeyboardEvent) => void;
}

const MarksContext = createContext<Marks>({ marks: new Map(), onNode: () => undefined, walk: () => undefined });
const nodeTypes = { step: memo(MarkedNode), container: memo(MarkedNode), note: memo(Note) };

const NONE = { nodes: new Array<RunNode>(), edges: new Array<Edge>() };
const NO_EDGE_MARKS: ReadonlyMap<string, EdgeMark> = new Map();
const LABELS = { drawing: t.region, nodes: t.nodes, edges: t.edges };

export function MarkedDrawing(props: Props): ReactNode {
  const { graph, labels = LABELS, hint, marks, onNode } = props;
  const [isList, setList] = useState(false);
  const layout = useLayout(graph);
  if (!graph?.nodes.length) return <Empty>{t.none}</Empty>;
  return (
    <div className="relative flex min-h-0 min-w-0 flex-1 flex-col">
      <div className="flex shrink-0 flex-wrap items-center gap-2 px-2 py-1">
        <Button aria-pressed={isList} onClick={() => setList(!isList)}>
          {t.list}
        </Button>
        {hint === undefined ? null : <span className="text-ink-2">{hint}</span>}
        {graph.drawn || isList ? null : <span className="text-ink-2">{t.laidOut}</span>}
      </div>
      {isList ? (
        <MarkedList graph={graph} label={labels.nodes} marks={marks} onNode={onNode} />
      ) : layout ? (
        <ReactFlowProvider>
          <Flow {...props} graph={graph} layout={layout} />
        </ReactFlowProvider>
      ) : (
        <Empty>{t.layingOut}</Empty>
      )}
    </div>
  );
}

function Flow({ graph, layout, labels = LABELS, marks, edgeMarks = NO_EDGE_MARKS, focus, onNode, onClear }: FlowProps): ReactNode {
  const nodes = useMemo(() => flowNodes(graph, layout), [graph, layout]);
  const edges = useMemo(() => flowEdges(graph, edgeMarks), [graph, edgeMarks]);
  const { getZoom, screenToFlowPosition, zoomIn, zoomOut, setCenter } = useReactFlow();
  const [firstFocus] = useState(focus);
  const isSmall = useStore((state) => state.transform[2] < SMALL_ZOOM);
  const isLarge = graph.nodes.length > MANY_NODES;
  const drawing = useMemo(() => (isLarge ? distantDrawing(graph, layout) : null), [isLarge, graph, layout]);
  const distant = isSmall ? drawing : null;
  const bounds = useMemo(() => boundsOf(absoluteBoxes(graph, layout).values()), [graph, layout]);
  const fit = useFit(bounds);
  const lookOf = useCallback((nodeId: string) => distantLook(marks.get(nodeId)?.looks ?? [], marks.get(nodeId)?.isSelected ?? false), [marks]);
  const id = useId();
  const pane = useRef<HTMLElement>(null);
  const hasMoved = useRef(false);
  const width = useWidth(pane);
  useEffect(() => {
    if (!width || hasMoved.current) return;
    void fit().then(() => {
      const box = firstFocus !== undefined && getZoom() < SMALL_ZOOM ? absoluteBox(graph, layout, firstFocus) : undefined;
      return box && setCenter(box.x + box.w / 2, box.y + box.h / 2, { zoom: FOCUS_ZOOM });
    });
  }, [width, fit, firstFocus, getZoom, graph, layout, setCenter]);

  const approach = useCallback(
    (target: string): void => {
      const box = absoluteBox(graph, layout, target);
      if (!box) return;
      const focus = (): boolean => {
        const button = pane.current?.querySelector<HTMLElement>(`[data-focus="${CSS.escape(target)}"]`);
        button?.focus();
        return Boolean(button);
      };
      if (!focus()) void setCenter(box.x + box.w / 2, box.y + box.h / 2, { zoom: 1 }).then(() => requestAnimationFrame(focus));
    },
    [graph, layout, setCenter],
  );
  const context = useMemo((): Marks => {
    const walk = (from: string, event: KeyboardEvent): void => {
      const direction = ({ ArrowRight: "next", ArrowLeft: "previous", ArrowUp: "up", ArrowDown: "down" } as const)[event.key];
      if (!direction) return;
      event.preventDefault();
      const target = neighbour(graph, layout, from, direction);
      if (target !== undefined) approach(target);
    };
    return { marks, onNode, walk };
  }, [graph, layout, marks, onNode, approach]);
  const choose = (event: MouseEvent): void => {
    const { x, y } = screenToFlowPosition({ x: event.clientX, y: event.clientY });
    const nodeId = distant ? nodeAt(distant, x, y)?.id : undefined;
    if (nodeId === undefined) onClear?.();
    else if (marks.get(nodeId)?.isActive) onNode(nodeId);
  };

  const zoomBy = (zoom: () => Promise<boolean>): void => {
    hasMoved.current = true;
    void zoom();
  };
  return (
    <section ref={pane} aria-label={labels.drawing} className="relative min-h-0 flex-1">
      <MarksContext value={context}>
        <ReactFlow
          id={id}
          nodes={distant ? NONE.nodes : nodes}
          edges={distant ? NONE.edges : edges}
          nodeTypes={nodeTypes}
          {...(isLarge ? { defaultViewport: DISTANT } : { fitView: true, fitViewOptions: FIT })}
          minZoom={0.03}
          maxZoom={2}
          nodesDraggable={false}
          nodesConnectable={false}
          nodesFocusable={false}
          edgesFocusable={false}
          elementsSelectable={false}
          onlyRenderVisibleElements={isLarge}
          onMoveStart={(event) => {
            if (event) hasMoved.current = true;
          }}
          zoomOnDoubleClick={false}
          disableKeyboardA11y
          onPaneClick={choose}
          onNodeClick={(event, node) => {
            if (!(event.target as Element).closest("button") && marks.get(node.id)?.isActive) onNode(node.id);
          }}
          deleteKeyCode={null}
          selectionKeyCode={null}
          multiSelectionKeyCode={null}
          panActivationKeyCode={null}
        >
          {distant ? <DistantView drawing={distant} edges={edges} lookOf={lookOf} first={firstFocus} onApproach={approach} /> : null}
        </ReactFlow>
      </MarksContext>
      <div className="absolute right-2 bottom-6 z-10 flex gap-1">
        <Button aria-label={t.zoomOut} onClick={() => zoomBy(zoomOut)}>
          −
        </Button>
        <Button aria-label={t.zoomIn} onClick={() => zoomBy(zoomIn)}>
          +
        </Button>
        <Button
          onClick={() => {
            hasMoved.current = false;
            void fit();
          }}
        >
          {t.fit}
        </Button>
      </div>
      <ul aria-label={labels.edges} className="sr-only">
        {graph.edges.map((edge) => {
          const mark = edgeMarks.get(edge.id);
          return mark ? (
            <li key={edge.id} data-testid="edge" data-edge={`${edge.from}>${edge.to}`} {...mark.data}>
              {mark.words}
            </li>
          ) : null;
        })}
      </ul>
    </section>
  );
}

function flowEdges(graph: Graph, edgeMarks: ReadonlyMap<string, EdgeMark>): Edge[] {
  const ids = new Set(graph.nodes.map((node) => node.id));
  return graph.edges.filter((edge) => ids.has(edge.from) && ids.has(edge.to)).map((edge) => {
    const mark = edgeMarks.get(edge.id);
    const label = [branchLabel(graph, edge), mark?.label].filter(Boolean).join(" · ");
    return {
      id: edge.id,
      source: edge.from,
      target: edge.to,
      ...handleIds(edge),
      className: mark?.className || edgeClass(edge, 0, false),
      ...(label
        ? { label, labelStyle: { fill: mark?.label ? "var(--ink)" : "var(--ink-2)", fontSize: mark?.label ? 14 : 11, fontWeight: mark?.label ? 600 : 400 }, labelBgStyle: { fill: "var(--surface)" } }
        : {}),
    };
  });
}

function MarkedNode({ data: { node, handles } }: NodeProps<RunNode>): ReactNode {
  const { marks, onNode, walk } = use(MarksContext);
  const isSmall = useStore((state) => state.transform[2] < SMALL_ZOOM);
  const mark = marks.get(node.id);
  const name = visibleName(node.name, 120);
  const isBox = isContainer(node);
  const isTiny = node.parent !== null && node.isStart;
  const [first, second] = mark?.looks ?? [];
  return (
    <div
      {...mark?.data}
      data-tone={second ? "neutral" : (first?.tone ?? "neutral")}
      data-border={second ? "solid" : (first?.border ?? "solid")}
      className={`h-full w-full rounded-md ${isBox ? "bg-panel/60" : "bg-surface"} ${mark?.isSelected ? "ring-2 ring-accent ring-offset-1" : ""}`}
    >
      <Handles handles={handles} />
      <button
        type="button"
        data-focus={node.id}
        aria-pressed={mark?.isSelected ?? false}
        aria-disabled={!mark?.isActive}
        onClick={() => (mark?.isActive ? onNode(node.id) : undefined)}
        onKeyDown={(event) => walk(node.id, event)}
        className={`nopan pointer-events-auto flex w-full items-center gap-1.5 overflow-hidden rounded-md px-1.5 text-left ${isBox ? (isSmall ? "h-12" : "h-9") : "h-full"} ${mark?.isActive ? "" : "cursor-default"}`}
      >
        {first ? <Badge look={first} isSmall={isSmall} /> : null}
        <span className={isTiny ? "sr-only" : `min-w-0 flex-1 ${isSmall ? "line-clamp-2 text-[20px] leading-[21px]" : "leading-tight"}`}>
          <span className={isSmall ? "font-medium" : "block truncate font-medium"}>
            <bdi>{name}</bdi>
            {mark?.words ? <span className="sr-only">, {mark.words}</span> : null}
          </span>
          {isSmall || isTiny || !mark?.detail ? null : <span className="block truncate text-[11px] text-ink-2">{mark.detail}</span>}
        </span>
        {second ? <Badge look={second} isSmall={isSmall} /> : null}
      </button>
    </div>
  );
}

function Badge({ look, isSmall }: { look: Look; isSmall: boolean }): ReactNode {
  return (
    <span
      aria-hidden="true"
      data-tone={look.tone}
      data-border={look.border}
      className={`flex h-7 min-w-7 shrink-0 items-center justify-center rounded bg-tone-soft px-0.5 text-tone ${isSmall ? "text-2xl" : "text-sm"}`}
    >
      {look.icon}
    </span>
  );
}

function Note({ data: { node, handles } }: NodeProps<RunNode>): ReactNode {
  const mark = use(MarksContext).marks.get(node.id);
  const [look] = mark?.looks ?? [];
  return (
    <div {...mark?.data} data-tone={look?.tone ?? "amber"} data-border={look?.border ?? "none"} className="h-full w-full overflow-hidden rounded border border-line bg-tone-soft p-2 text-ink">
      <Handles handles={handles} />
      {look ? <span aria-hidden="true">{look.icon} </span> : null}
      {visibleName(node.name, 300)}
      {mark?.words ? <span className="sr-only">, {mark.words}</span> : null}
    </div>
  );
}
