/** The drawing of a graph by xyflow. Sizes and handles are given, so nothing is measured; each node reads its own state. */
import {
  Handle, MiniMap, Position, ReactFlow, ReactFlowProvider, useReactFlow, useStore, type Edge, type MiniMapNodeProps,
  type Node, type NodeHandle, type NodeProps,
} from "@xyflow/react";
import {
  createContext, memo, use, useCallback, useMemo, useRef, useState, type KeyboardEvent, type MouseEvent, type ReactNode,
} from "react";

import { useFilmTime } from "../run/film-bar";
import { useRun, useRunContext } from "../run/use-run";
import type { Graph, GraphEdge, GraphNode } from "../store/graph";
import { containerProgress, type Progress } from "../store/items";
import { NODE_LOOKS, nodeState } from "../store/node-states";
import type { RunState } from "../store/run";
import { isOver } from "../store/run-status";
import { texts } from "../texts";
import { duration } from "../ui/format";
import { Button } from "../ui/parts";
import { useShortcut } from "../ui/shortcuts";
import { visibleName } from "../ui/visible-text";
import { absoluteBox, useCamera, useFollow, type Camera } from "./camera";
import { useFigure, useFigures } from "./overlay";
import { distantDrawing, nodeAt, type DistantDrawing, type DistantLook } from "./distant-drawing";
import { distantLook, DistantView } from "./distant-view";
import { absoluteBoxes, boundsOf, isContainer, type Box, type Layout } from "./layout";
import { NodeEditingContext } from "./node-editing";
import { countsText, stepToShow } from "./node-facts";

const t = texts.graph;
export const SMALL_ZOOM = 0.4; // below it a node shows its name alone, in large letters
export const MANY_NODES = 300; // above this many, all of them are then one canvas: a thousand buttons are slow to move

export interface NodeData extends Record<string, unknown> {
  node: GraphNode;
  handles: readonly NodeHandle[];
}
export type RunNode = Node<NodeData>;
type Walk = (from: string, direction: "next" | "previous" | "up" | "down") => void;

const WalkContext = createContext<Walk>(() => undefined);
const NONE = { nodes: new Array<RunNode>(), edges: new Array<Edge<EdgeData>>() };
export const DISTANT = { x: 0, y: 0, zoom: 0.05 }; // until the camera has found its place
export const nodeTypes = { step: memo(StepNode), container: memo(ContainerNode), note: memo(NoteNode) };

export function Drawing({ graph, layout }: { graph: Graph; layout: Layout }): ReactNode {
  return (
    <ReactFlowProvider>
      <Flow graph={graph} layout={layout} />
    </ReactFlowProvider>
  );
}

function Flow({ graph, layout }: { graph: Graph; layout: Layout }): ReactNode {
  const nodes = useMemo(() => flowNodes(graph, layout), [graph, layout]);
  const edges = useFlowEdges(graph);
  const { setCenter, screenToFlowPosition } = useReactFlow();
  const { store, selectStep } = useRunContext();
  const isSmall = useStore((state) => state.transform[2] < SMALL_ZOOM);
  const pane = useRef<HTMLElement>(null);
  const bounds = useMemo(() => boundsOf(absoluteBoxes(graph, layout).values()), [graph, layout]);
  const camera = useCamera(pane, bounds);
  const isLarge = graph.nodes.length > MANY_NODES;
  const isDistant = isLarge && isSmall;
  const [hasMap, setMap] = useState(false);
  useFollow(graph, layout, pane);

  const centre = useCallback(
    (nodeId: string, zoom?: number): Promise<boolean> => {
      const box = absoluteBox(graph, layout, nodeId);
      return box ? setCenter(box.x + box.w / 2, box.y + box.h / 2, zoom === undefined ? {} : { zoom }) : Promise.resolve(false);
    },
    [graph, layout, setCenter],
  );
  const approach = useCallback(
    (target: string): void => {
      const focus = (): boolean => {
        const button = document.querySelector<HTMLElement>(`[data-focus="${CSS.escape(target)}"]`);
        button?.focus();
        return button !== null;
      };
      if (!focus()) void centre(target, 1).then(() => requestAnimationFrame(focus));
    },
    [centre],
  );
  const walk = useCallback<Walk>(
    (from, direction) => {
      const target = neighbour(graph, layout, from, direction);
      if (target !== undefined) approach(target);
    },
    [graph, layout, approach],
  );
  const select = (nodeId: string): void => {
    const step = stepToShow(store.getState(), nodeId);
    if (step !== null) selectStep(step);
  };
  const distant = useMemo(() => (isLarge ? distantDrawing(graph, layout) : null), [isLarge, graph, layout]);
  const distantNode = ({ clientX, clientY }: MouseEvent): string | undefined => {
    const { x, y } = screenToFlowPosition({ x: clientX, y: clientY });
    return distant && isSmall ? nodeAt(distant, x, y)?.id : undefined;
  };

  return (
    <section ref={pane} aria-label={t.region} className="min-h-0 flex-1">
      <WalkContext value={walk}>
        <ReactFlow
          nodes={isDistant ? NONE.nodes : nodes}
          edges={isDistant ? NONE.edges : edges}
          nodeTypes={nodeTypes}
          onInit={camera.open}
          {...(isLarge ? { defaultViewport: DISTANT } : {})}
          minZoom={0.03}
          maxZoom={2}
          nodesDraggable={false}
          nodesConnectable={false}
          nodesFocusable={false}
          edgesFocusable={false}
          elementsSelectable={false}
          onlyRenderVisibleElements={isLarge}
          onMoveStart={camera.onMoveStart}
          onMoveEnd={camera.onMoveEnd}
          zoomOnDoubleClick={false}
          disableKeyboardA11y
          onNodeClick={(event, node) => {
            if (!(event.target as Element).closest("button")) select(node.id); // a button selects the step itself
          }}
          onPaneClick={(event) => {
            const nodeId = distantNode(event);
            if (nodeId !== undefined) select(nodeId);
          }}
          onDoubleClick={(event) => {
            const nodeId = distantNode(event);
            if (nodeId !== undefined) void centre(nodeId, 1).then(camera.write);
          }}
          onNodeDoubleClick={(_, node) => void centre(node.id).then(camera.write)}
          deleteKeyCode={null}
          selectionKeyCode={null}
          multiSelectionKeyCode={null}
          panActivationKeyCode={null}
        >
          {distant && isSmall ? <DistantRun drawing={distant} edges={edges} onApproach={approach} /> : null}
          {hasMap && !isDistant ? <MiniMap aria-hidden="true" ariaLabel={null} nodeComponent={MapNode} pannable className="bottom-10! bg-panel!" maskColor="transparent" maskStrokeColor="var(--accent)" maskStrokeWidth={8} /> : null}
        </ReactFlow>
      </WalkContext>
      <CameraButtons camera={camera} hasMap={hasMap} onMap={() => setMap(!hasMap)} />
      <EdgeList graph={graph} edges={edges} />
    </section>
  );
}

/** A large drawing from afar, with the states of a run. */
function DistantRun({ drawing, edges, onApproach }: { drawing: DistantDrawing; edges: readonly Edge<EdgeData>[]; onApproach: (nodeId: string) => void }): ReactNode {
  const { store, selectedStep } = useRunContext();
  const selectedNode = useRun((state) => (selectedStep === null ? null : (state.steps.find(selectedStep)?.nodeId ?? null)));
  const figures = useFigures();
  const lookOf = useCallback(
    (nodeId: string): DistantLook => {
      const state = nodeState(store.getState(), nodeId);
      const heat = figures?.(nodeId)?.heat;
      const look = distantLook([NODE_LOOKS[state]], nodeId === selectedNode);
      return { ...look, state, ...(heat === undefined ? {} : { fill: `heat-${heat}` }) };
    },
    [store, figures, selectedNode],
  );
  return <DistantView drawing={drawing} edges={edges} lookOf={lookOf} subscribe={store.subscribe} first={selectedNode ?? undefined} onApproach={onApproach} />;
}

function CameraButtons({ camera, hasMap, onMap }: { camera: Camera; hasMap: boolean; onMap: () => void }): ReactNode {
  const { isFollowing, setFollowing } = useRunContext();
  const c = texts.camera;
  useShortcut("0", c.fit, camera.fit);
  useShortcut("1", c.actual, camera.actual);
  useShortcut("+", c.in, camera.zoomIn);
  useShortcut("-", c.out, camera.zoomOut);
  return (
    <div className="absolute right-2 bottom-6 z-10 flex flex-wrap justify-end gap-1">
      <Button aria-pressed={isFollowing} onClick={() => setFollowing(!isFollowing)}>
        {c.follow}
      </Button>
      <Button aria-pressed={hasMap} onClick={onMap}>
        {c.minimap}
      </Button>
      <Button aria-label={t.zoomOut} onClick={camera.zoomOut}>
        −
      </Button>
      <Button aria-label={t.zoomIn} onClick={camera.zoomIn}>
        +
      </Button>
      <Button onClick={camera.fit}>{t.fit}</Button>
    </div>
  );
}

// -- what xyflow gets --------------------------------------------------------------------------------------------------
export function flowNodes(graph: Graph, layout: Layout): RunNode[] {
  const ids = new Set(graph.nodes.map((node) => node.id));
  const used = new Set(graph.edges.flatMap((edge) => {
    const { sourceHandle, targetHandle } = handleIds(edge);
    return [`${edge.from} ${sourceHandle}`, `${edge.to} ${targetHandle}`];
  }));
  const ordered = graph.nodes.toSorted((a, b) => depthOf(graph, a) - depthOf(graph, b)); // parents come first
  return ordered.map((node) => {
    const box = layout.get(node.id) ?? { x: 0, y: 0, w: 200, h: 49 };
    const size = { width: box.w, height: box.h };
    const handles = handlesOf(node, box).filter((handle) => used.has(`${node.id} ${handle.id}`));
    return {
      id: node.id,
      type: node.kind === "noteNode" ? "note" : isContainer(node) ? "container" : "step",
      position: { x: box.x, y: box.y },
      data: { node, handles },
      ...size,
      measured: size,
      handles,
      ...(node.parent !== null && ids.has(node.parent) ? { parentId: node.parent } : {}),
    };
  });
}

function depthOf(graph: Graph, node: GraphNode): number {
  let depth = 0;
  for (let at: GraphNode | undefined = node; at?.parent != null && depth < 20; depth++) {
    const parent: string = at.parent;
    at = graph.nodes.find((each) => each.id === parent);
  }
  return depth;
}

function handlesOf(node: GraphNode, box: Box): NodeHandle[] {
  const handle = (id: string, type: "source" | "target", position: Position, x: number, y: number): NodeHandle => ({ id, type, position, x, y, width: 1, height: 1 });
  const step = box.h / (node.branches.length + 1);
  return [
    handle("in", "target", Position.Left, 0, box.h / 2),
    handle("out", "source", Position.Right, box.w, box.h / 2),
    handle("exception", "source", Position.Right, box.w, box.h - 6),
    handle("top", "target", Position.Top, box.w / 2, 0),
    handle("bottom", "source", Position.Bottom, box.w / 2, box.h),
    ...node.branches.map((branch, index) => handle(`b:${branch.key}`, "source", Position.Right, box.w, step * (index + 1))),
  ];
}

export interface EdgeData extends Record<string, unknown> {
  taken: number;
}

function useFlowEdges(graph: Graph): Edge<EdgeData>[] {
  const taken = useRun((state) => state.edges);
  const hasEnded = useRun((state) => state.header !== null && isOver(state.header.status));
  const activeNodes = useRun(activeNodesOf); // a text, so that it changes only with the set
  const before = useRef<readonly Edge<EdgeData>[]>([]);
  return useMemo(() => {
    const ids = new Set(graph.nodes.map((node) => node.id));
    const active = new Set(activeNodes.split("\n"));
    const known = new Map(before.current.map((edge) => [edge.id, edge]));
    const edges = graph.edges
      .filter((edge) => ids.has(edge.from) && ids.has(edge.to))
      .map((edge) => {
        const count = taken.get(edge.id) ?? 0;
        const className = edgeClass(edge, count, hasEnded, active.has(edge.to));
        const old = known.get(edge.id);
        if (old?.className === className && old.data?.taken === count) return old; // what has not changed is not drawn again
        const label = branchLabel(graph, edge);
        return {
          id: edge.id,
          source: edge.from,
          target: edge.to,
          ...handleIds(edge),
          className,
          data: { taken: count },
          ...(label ? { label, labelStyle: { fill: "var(--ink-2)", fontSize: 11 }, labelBgStyle: { fill: "var(--surface)" } } : {}),
        };
      });
    before.current = edges;
    return edges;
  }, [graph, taken, hasEnded, activeNodes]);
}

/** Return the nodes into which edges are in motion, one a line. */
function activeNodesOf(state: RunState): string {
  const found: string[] = [];
  for (const [nodeId, node] of state.nodes) if (node.counts.running || node.counts.streaming) found.push(nodeId);
  return found.join("\n");
}

export function handleIds(edge: GraphEdge): { sourceHandle: string; targetHandle: string } {
  if (edge.kind === "agent" || edge.kind === "tool") return { sourceHandle: "bottom", targetHandle: "top" };
  if (edge.kind === "exception") return { sourceHandle: "exception", targetHandle: "in" };
  return { sourceHandle: edge.branch === null ? "out" : `b:${edge.branch}`, targetHandle: "in" };
}

export function edgeClass(edge: GraphEdge, taken: number, hasEnded: boolean, isActive = false): string {
  if (edge.kind === "agent" || edge.kind === "tool") return "edge-static";
  const exception = edge.kind === "exception" ? "edge-exception " : "";
  return `${exception}${taken ? `edge-taken ${isActive ? "edge-moving" : ""}` : hasEnded ? "edge-idle" : ""}`;
}

export function branchLabel(graph: Graph, edge: GraphEdge): string | null {
  if (edge.branch === null) return null;
  const node = graph.nodes.find((each) => each.id === edge.from);
  return visibleName(node?.branches.find((each) => each.key === edge.branch)?.label ?? edge.branch, 40);
}

// -- walking along edges -----------------------------------------------------------------------------------------------
export function neighbour(graph: Graph, layout: Layout, from: string, direction: "next" | "previous" | "up" | "down"): string | undefined {
  if (direction === "next") return graph.edges.find((edge) => edge.from === from)?.to;
  if (direction === "previous") return graph.edges.find((edge) => edge.to === from)?.from;
  const own = absoluteBox(graph, layout, from);
  if (!own) return undefined;
  const others = graph.nodes.flatMap((node) => {
    const box = node.id === from ? undefined : absoluteBox(graph, layout, node.id);
    const isThatWay = box && (direction === "down" ? box.y > own.y : box.y < own.y);
    return box && isThatWay ? [{ id: node.id, distance: Math.hypot(3 * (box.x - own.x), box.y - own.y) }] : [];
  });
  return others.sort((a, b) => a.distance - b.distance)[0]?.id;
}

// -- nodes -------------------------------------------------------------------------------------------------------------
function useNodeFacts(node: GraphNode, isChosen: boolean) {
  const summary = useRun((state) => state.nodes.get(node.id));
  const shown = useRun((state) => nodeState(state, node.id));
  const { store, selectedStep, selectStep } = useRunContext();
  const walk = use(WalkContext);
  const editing = use(NodeEditingContext);
  const isSelected = isChosen || (selectedStep !== null && store.getState().steps.find(selectedStep)?.nodeId === node.id);
  const isIdle = editing !== null && shown === "pending";
  const look = isIdle ? { ...NODE_LOOKS[shown], word: editing.describe(node) } : NODE_LOOKS[shown];
  const icon = isIdle ? editing.iconOf(node) : look.icon;
  const counts = summary && summary.steps > 1 ? countsText(summary) : null;
  const work = summary?.workMs ? duration(summary.workMs) : null;
  const items = summary?.items ? texts.time.items(summary.items) : null;
  const figure = useFigure(node.id);
  const name = visibleName(node.name, 120);
  const onKeyDown = (event: KeyboardEvent): void => {
    const direction = ({ ArrowRight: "next", ArrowLeft: "previous", ArrowUp: "up", ArrowDown: "down" } as const)[event.key];
    if (!direction) return;
    event.preventDefault();
    walk(node.id, direction);
  };
  return {
    look, icon, counts, work, items, name, isSelected, figure,
    attributes: {
      ...(figure ? { "data-heat": figure.heat, "data-figure": figure.value } : {}),
      "data-testid": "node",
      "data-node-id": node.id,
      "data-state": shown,
      "data-counts": JSON.stringify(summary?.counts ?? {}),
    },
    button: editing
      ? {
          "data-focus": node.id,
          "aria-pressed": isChosen,
          onKeyDown: (event: KeyboardEvent) => editing.onKeyDown(node.id, event),
          onClick: (event: MouseEvent) => editing.onClick(node.id, event),
        }
      : {
          "data-focus": node.id,
          onKeyDown,
          onClick: () => {
            const step = stepToShow(store.getState(), node.id);
            if (step !== null) selectStep(step);
          },
        },
  };
}

interface HandlesProps {
  handles: readonly NodeHandle[];
  /** Where nodes can be edited: the node, which then has handles of its own. */
  node?: GraphNode;
  isSelected?: boolean;
}

/** The ends of edges: xyflow reads their places from the document, whatever it was given. */
export function Handles({ handles, node, isSelected = false }: HandlesProps): ReactNode {
  const editing = use(NodeEditingContext);
  if (editing && node) return <editing.Extras node={node} isSelected={isSelected} />;
  return handles.map(({ id, type, position, x, y }) => (
    <Handle key={id} id={id ?? null} type={type} position={position} isConnectable={false} style={{ left: x, top: y, width: 1, height: 1, right: "auto", bottom: "auto", transform: "none", border: 0, minWidth: 0, minHeight: 0, opacity: 0 }} />
  ));
}

function StepNode({ data: { node, handles }, selected }: NodeProps<RunNode>): ReactNode {
  const { look, icon, counts, work, name, isSelected, figure, attributes, button } = useNodeFacts(node, selected);
  const isSmall = useStore((state) => state.transform[2] < SMALL_ZOOM);
  const isTiny = node.parent !== null && node.isStart;
  return (
    <div
      {...attributes}
      data-tone={look.tone}
      data-border={look.border}
      className={`h-full w-full rounded-md bg-surface ${attributes["data-state"] === "skipped" ? "text-ink-2" : ""} ${isSelected ? "ring-2 ring-accent ring-offset-1" : ""}`}
    >
      <Handles node={node} handles={handles} isSelected={selected} />
      {isSmall ? (
        <button type="button" {...button} className={`nopan pointer-events-auto flex h-full w-full items-center gap-1.5 overflow-hidden rounded-md px-1.5 text-left ${figure ? "" : "bg-tone-soft"}`}>
          <span aria-hidden="true" className="text-2xl text-tone">
            {icon}
          </span>
          <span className={isTiny ? "sr-only" : "line-clamp-2 text-[20px] leading-[21px] font-medium text-ink"}>
            <bdi>{figure ? figure.text : name}</bdi>
            <span className="sr-only">{figure ? `, ${name}, ` : ", "}{look.word}</span>
          </span>
        </button>
      ) : (
        <button type="button" {...button} className="nopan pointer-events-auto flex h-full w-full items-center gap-1.5 overflow-hidden rounded-md px-1.5 text-left">
          <span aria-hidden="true" className="flex h-7 min-w-7 shrink-0 items-center justify-center rounded bg-tone-soft px-0.5 text-sm text-tone">
            {icon}
          </span>
          {isTiny ? (
            <span className="sr-only">{`${name}, ${look.word}`}</span>
          ) : (
            <span className="min-w-0 flex-1 leading-tight">
              <span className="block truncate font-medium">
                <bdi>{name}</bdi>
                <span className="sr-only">, {look.word},</span>
              </span>
              <span className="block truncate text-[11px] text-ink-2">{figure?.text ?? counts ?? [visibleName(node.component, 40), work].filter(Boolean).join(" · ")}</span>
            </span>
          )}
        </button>
      )}
    </div>
  );
}

function ContainerNode({ data: { node, handles }, selected }: NodeProps<RunNode>): ReactNode {
  const { look, icon, counts, work, items, name, isSelected, figure, attributes, button } = useNodeFacts(node, selected);
  const progress = useProgress(node.id);
  return (
    <div
      {...attributes}
      data-tone={look.tone}
      data-border={look.border}
      className={`h-full w-full rounded-lg bg-panel/60 ${isSelected ? "ring-2 ring-accent ring-offset-1" : ""}`}
    >
      <Handles node={node} handles={handles} isSelected={selected} />
      <div className="flex h-9 items-center pr-2">
      <button type="button" {...button} className="nopan pointer-events-auto flex h-9 min-w-0 items-center gap-1.5 rounded px-2 text-left">
        <span aria-hidden="true" className="flex size-6 shrink-0 items-center justify-center rounded bg-tone-soft text-tone">
          {icon}
        </span>
        <span className="truncate font-medium">
          <bdi>{name}</bdi>
          <span className="sr-only">, {look.word},</span>
        </span>
        <span className="shrink-0 text-[11px] text-ink-2">{figure?.text ?? [counts, progress ? null : (items ?? visibleName(node.component, 40)), work].filter(Boolean).join(" · ")}</span>
      </button>
      {progress ? <ItemsProgress nodeId={node.id} progress={progress} /> : null}
      </div>
    </div>
  );
}

/** How many items have ended, as a thin line and in words that open the items. */
function ItemsProgress({ nodeId, progress }: { nodeId: string; progress: Progress }): ReactNode {
  const { store, onSearch } = useRunContext();
  const open = (): void => {
    const { steps } = store.getState();
    const row = steps.inOrder().findLast((each) => steps.text(each, "nodeId") === nodeId && steps.text(each, "outcome") === "ContainerOpened");
    if (row !== undefined) onSearch({ items: steps.id(row), item: undefined, which: undefined });
  };
  return (
    <>
      <button type="button" onClick={open} className="nopan pointer-events-auto ml-auto min-h-6 shrink-0 text-[11px] text-accent underline" title={texts.items.open}>
        {texts.items.done(progress.done, progress.items)}
      </button>
      <div aria-hidden="true" className="absolute inset-x-2 top-9 h-1 overflow-hidden rounded bg-line">
        <div className="h-full bg-tone" style={{ width: `${(100 * progress.done) / Math.max(1, progress.items)}%` }} />
      </div>
    </>
  );
}

const progressOfState = new WeakMap<RunState, Map<string, Progress>>();

/** Return the progress of a container; null for other nodes, and while the film shows another time. */
function useProgress(nodeId: string): Progress | null {
  const time = useFilmTime();
  const text = useRun((state) => {
    if (state.rows.isPartial) return "";
    const known = progressOfState.get(state) ?? containerProgress(state);
    progressOfState.set(state, known);
    const progress = known.get(nodeId);
    return progress ? `${progress.items} ${progress.done}` : "";
  });
  if (text === "" || time !== null) return null;
  const [items = 0, done = 0] = text.split(" ").map(Number);
  return { items, done };
}

/** A node on the small map, in the colour of its state. */
function MapNode({ id, x, y, width, height }: MiniMapNodeProps): ReactNode {
  const shown = useRun((state) => nodeState(state, id));
  return (
    <g data-tone={NODE_LOOKS[shown].tone}>
      <rect x={x} y={y} width={width} height={height} rx={8} fill="var(--tone)" />
    </g>
  );
}

function NoteNode({ data: { node, handles }, selected }: NodeProps<RunNode>): ReactNode {
  return (
    <div data-testid="node" data-node-id={node.id} data-state="pending" data-counts="{}" data-tone="amber" className="h-full w-full overflow-hidden rounded border border-line bg-tone-soft p-2 text-ink">
      <Handles node={node} handles={handles} isSelected={selected} />
      {visibleName(node.name, 300)}
    </div>
  );
}

// -- the same edges for screen readers ---------------------------------------------------------------------------------
export const EdgeList = memo(function EdgeList({ graph, edges }: { graph: Graph; edges: readonly Edge<EdgeData>[] }): ReactNode {
  const names = useMemo(() => new Map(graph.nodes.map((node) => [node.id, node.name])), [graph]);
  return (
    <ul aria-label={t.edges} className="sr-only">
      {edges.map((edge) => (
        <EdgeRow key={edge.id} edge={edge} names={names} />
      ))}
    </ul>
  );
});

const EdgeRow = memo(function EdgeRow({ edge, names }: { edge: Edge<EdgeData>; names: ReadonlyMap<string, string> }): ReactNode {
  const taken = edge.data?.taken ?? 0;
  return (
    <li data-testid="edge" data-edge={`${edge.source}>${edge.target}`} data-taken={taken}>
      {t.edge(visibleName(names.get(edge.source) ?? "", 80), visibleName(names.get(edge.target) ?? "", 80), taken)}
    </li>
  );
});
