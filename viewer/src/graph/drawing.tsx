/** The drawing of a graph by xyflow. Sizes and handles are given, so nothing is measured; each node reads its own state. */
import {
  Handle, Position, ReactFlow, ReactFlowProvider, useReactFlow, useStore, type Edge, type Node, type NodeHandle,
  type NodeProps,
} from "@xyflow/react";
import { createContext, memo, use, useCallback, useEffect, useMemo, useRef, type KeyboardEvent, type MouseEvent, type ReactNode } from "react";

import { useRun, useRunContext, useRunState } from "../run/use-run";
import { takenEdges } from "../store/edges";
import type { Graph, GraphEdge, GraphNode } from "../store/graph";
import { NODE_LOOKS, nodeState } from "../store/node-states";
import { isOver } from "../store/run-status";
import { texts } from "../texts";
import { duration } from "../ui/format";
import { Button } from "../ui/parts";
import { useWidth } from "../ui/use-width";
import { visibleName } from "../ui/visible-text";
import { isContainer, type Box, type Layout } from "./layout";
import { NodeEditingContext } from "./node-editing";
import { countsText, stepToShow } from "./node-facts";

const t = texts.graph;
const SMALL_ZOOM = 0.4; // below it a node shows its name alone, in large letters
const MANY_NODES = 300; // above this many, it is a plain box: a thousand buttons are slow to move
const FIT = { padding: 0.06, maxZoom: 1 };

interface NodeData extends Record<string, unknown> {
  node: GraphNode;
  isOneOfMany: boolean;
  handles: readonly NodeHandle[];
}
export type RunNode = Node<NodeData>;
type Walk = (from: string, direction: "next" | "previous" | "up" | "down") => void;

const WalkContext = createContext<Walk>(() => undefined);
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
  const { fitView, zoomIn, zoomOut, setCenter } = useReactFlow();
  const { store, selectStep } = useRunContext();
  const isSmall = useStore((state) => state.transform[2] < SMALL_ZOOM);
  const pane = useRef<HTMLElement>(null);
  const hasMoved = useRef(false);
  const width = useWidth(pane);

  useEffect(() => {
    if (width && !hasMoved.current) void fitView(FIT); // the inspector takes room, and gives it back
  }, [width, fitView]);

  const walk = useCallback<Walk>(
    (from, direction) => {
      const target = neighbour(graph, layout, from, direction);
      const box = target === undefined ? undefined : absoluteBox(graph, layout, target);
      if (target === undefined || !box) return;
      const focus = (): boolean => {
        const button = document.querySelector<HTMLElement>(`[data-focus="${CSS.escape(target)}"]`);
        button?.focus();
        return button !== null;
      };
      if (!focus()) void setCenter(box.x + box.w / 2, box.y + box.h / 2, { zoom: 1 }).then(() => requestAnimationFrame(focus));
    },
    [graph, layout, setCenter],
  );

  const zoomBy = (zoom: () => Promise<boolean>): Promise<boolean> => {
    hasMoved.current = true;
    return zoom();
  };

  return (
    <section ref={pane} aria-label={t.region} className="min-h-0 flex-1">
      <WalkContext value={walk}>
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
          onlyRenderVisibleElements={!isSmall && graph.nodes.length > MANY_NODES}
          onMoveStart={(event) => {
            if (event) hasMoved.current = true;
          }}
          zoomOnDoubleClick={false}
          disableKeyboardA11y
          onNodeClick={(event, node) => {
            if ((event.target as Element).closest("button")) return; // it selects the step itself
            const step = stepToShow(store.getState(), node.id);
            if (step !== null) selectStep(step);
          }}
          deleteKeyCode={null}
          selectionKeyCode={null}
          multiSelectionKeyCode={null}
          panActivationKeyCode={null}
        />
      </WalkContext>
      <div className="absolute right-2 bottom-6 z-10 flex gap-1">
        <Button aria-label={t.zoomOut} onClick={() => void zoomBy(zoomOut)}>
          −
        </Button>
        <Button aria-label={t.zoomIn} onClick={() => void zoomBy(zoomIn)}>
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
      <EdgeList graph={graph} edges={edges} />
    </section>
  );
}

// -- what xyflow gets --------------------------------------------------------------------------------------------------
function flowNodes(graph: Graph, layout: Layout): RunNode[] {
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
      data: { node, handles, isOneOfMany: graph.nodes.length > MANY_NODES },
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
  const state = useRunState();
  return useMemo(() => {
    const taken = takenEdges(state);
    const hasEnded = state.header !== null && isOver(state.header.status);
    const ids = new Set(graph.nodes.map((node) => node.id));
    return graph.edges
      .filter((edge) => ids.has(edge.from) && ids.has(edge.to))
      .map((edge) => {
        const count = taken.get(edge.id) ?? 0;
        const label = branchLabel(graph, edge);
        return {
          id: edge.id,
          source: edge.from,
          target: edge.to,
          ...handleIds(edge),
          className: edgeClass(edge, count, hasEnded),
          data: { taken: count },
          ...(label ? { label, labelStyle: { fill: "var(--ink-2)", fontSize: 11 }, labelBgStyle: { fill: "var(--surface)" } } : {}),
        };
      });
  }, [graph, state]);
}

function handleIds(edge: GraphEdge): { sourceHandle: string; targetHandle: string } {
  if (edge.kind === "agent" || edge.kind === "tool") return { sourceHandle: "bottom", targetHandle: "top" };
  if (edge.kind === "exception") return { sourceHandle: "exception", targetHandle: "in" };
  return { sourceHandle: edge.branch === null ? "out" : `b:${edge.branch}`, targetHandle: "in" };
}

export function edgeClass(edge: GraphEdge, taken: number, hasEnded: boolean): string {
  if (edge.kind === "agent" || edge.kind === "tool") return "edge-static";
  const exception = edge.kind === "exception" ? "edge-exception " : "";
  return `${exception}${taken ? "edge-taken" : hasEnded ? "edge-idle" : ""}`;
}

function branchLabel(graph: Graph, edge: GraphEdge): string | null {
  if (edge.branch === null) return null;
  const node = graph.nodes.find((each) => each.id === edge.from);
  return visibleName(node?.branches.find((each) => each.key === edge.branch)?.label ?? edge.branch, 40);
}

// -- walking along edges -----------------------------------------------------------------------------------------------
function neighbour(graph: Graph, layout: Layout, from: string, direction: "next" | "previous" | "up" | "down"): string | undefined {
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

function absoluteBox(graph: Graph, layout: Layout, id: string): Box | undefined {
  const box = layout.get(id);
  const parent = graph.nodes.find((node) => node.id === id)?.parent;
  const outer = parent ? absoluteBox(graph, layout, parent) : undefined;
  return box && outer ? { ...box, x: box.x + outer.x, y: box.y + outer.y } : box;
}

// -- nodes -------------------------------------------------------------------------------------------------------------
function useNodeFacts(node: GraphNode, isChosen: boolean) {
  const summary = useRun((state) => state.nodes.get(node.id));
  const shown = useRun((state) => nodeState(state, node.id));
  const { store, selectedStep, selectStep } = useRunContext();
  const walk = use(WalkContext);
  const editing = use(NodeEditingContext);
  const isSelected = isChosen || (selectedStep !== null && store.getState().steps.find(selectedStep)?.nodeId === node.id);
  const look = editing && shown === "pending" ? { ...NODE_LOOKS[shown], icon: editing.iconOf(node), word: editing.describe(node) } : NODE_LOOKS[shown];
  const counts = summary && summary.steps > 1 ? countsText(summary) : null;
  const work = summary?.workMs ? duration(summary.workMs) : null;
  const items = summary?.items ? texts.time.items(summary.items) : null;
  const name = visibleName(node.name, 120);
  const onKeyDown = (event: KeyboardEvent): void => {
    const direction = ({ ArrowRight: "next", ArrowLeft: "previous", ArrowUp: "up", ArrowDown: "down" } as const)[event.key];
    if (!direction) return;
    event.preventDefault();
    walk(node.id, direction);
  };
  return {
    look, counts, work, items, name, isSelected,
    attributes: {
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

/** The ends of edges: xyflow reads their places from the document, whatever it was given. */
function Handles({ node, handles, isSelected }: { node: GraphNode; handles: readonly NodeHandle[]; isSelected: boolean }): ReactNode {
  const editing = use(NodeEditingContext);
  if (editing) return <editing.Extras node={node} isSelected={isSelected} />;
  return handles.map(({ id, type, position, x, y }) => (
    <Handle key={id} id={id ?? null} type={type} position={position} isConnectable={false} style={{ left: x, top: y, width: 1, height: 1, right: "auto", bottom: "auto", transform: "none", border: 0, minWidth: 0, minHeight: 0, opacity: 0 }} />
  ));
}

function StepNode({ data: { node, handles, isOneOfMany }, selected }: NodeProps<RunNode>): ReactNode {
  const { look, counts, work, name, isSelected, attributes, button } = useNodeFacts(node, selected);
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
      {isSmall && isOneOfMany ? (
        <div className="flex h-full items-center justify-center rounded-sm bg-tone text-3xl text-surface" aria-hidden="true">
          {look.icon}
        </div>
      ) : isSmall ? (
        <button type="button" {...button} className="nopan pointer-events-auto flex h-full w-full items-center gap-1.5 overflow-hidden rounded-md bg-tone-soft px-1.5 text-left">
          <span aria-hidden="true" className="text-2xl text-tone">
            {look.icon}
          </span>
          <span className={isTiny ? "sr-only" : "line-clamp-2 text-[20px] leading-[21px] font-medium text-ink"}>
            <bdi>{name}</bdi>
            <span className="sr-only">, {look.word}</span>
          </span>
        </button>
      ) : (
        <button type="button" {...button} className="nopan pointer-events-auto flex h-full w-full items-center gap-1.5 overflow-hidden rounded-md px-1.5 text-left">
          <span aria-hidden="true" className="flex h-7 min-w-7 shrink-0 items-center justify-center rounded bg-tone-soft px-0.5 text-sm text-tone">
            {look.icon}
          </span>
          {isTiny ? (
            <span className="sr-only">{`${name}, ${look.word}`}</span>
          ) : (
            <span className="min-w-0 flex-1 leading-tight">
              <span className="block truncate font-medium">
                <bdi>{name}</bdi>
                <span className="sr-only">, {look.word},</span>
              </span>
              <span className="block truncate text-[11px] text-ink-2">{counts ?? [visibleName(node.component, 40), work].filter(Boolean).join(" · ")}</span>
            </span>
          )}
        </button>
      )}
    </div>
  );
}

function ContainerNode({ data: { node, handles }, selected }: NodeProps<RunNode>): ReactNode {
  const { look, counts, work, items, name, isSelected, attributes, button } = useNodeFacts(node, selected);
  return (
    <div
      {...attributes}
      data-tone={look.tone}
      data-border={look.border}
      className={`h-full w-full rounded-lg bg-panel/60 ${isSelected ? "ring-2 ring-accent ring-offset-1" : ""}`}
    >
      <Handles node={node} handles={handles} isSelected={selected} />
      <button type="button" {...button} className="nopan pointer-events-auto flex h-9 max-w-full items-center gap-1.5 rounded px-2 text-left">
        <span aria-hidden="true" className="flex size-6 shrink-0 items-center justify-center rounded bg-tone-soft text-tone">
          {look.icon}
        </span>
        <span className="truncate font-medium">
          <bdi>{name}</bdi>
          <span className="sr-only">, {look.word},</span>
        </span>
        <span className="shrink-0 text-[11px] text-ink-2">{[counts, items ?? visibleName(node.component, 40), work].filter(Boolean).join(" · ")}</span>
      </button>
    </div>
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
export function EdgeList({ graph, edges }: { graph: Graph; edges: readonly Edge<EdgeData>[] }): ReactNode {
  const names = useMemo(() => new Map(graph.nodes.map((node) => [node.id, node.name])), [graph]);
  return (
    <ul aria-label={t.edges} className="sr-only">
      {edges.map((edge) => (
        <li key={edge.id} data-testid="edge" data-edge={`${edge.source}>${edge.target}`} data-taken={edge.data?.taken ?? 0}>
          {t.edge(visibleName(names.get(edge.source) ?? "", 80), visibleName(names.get(edge.target) ?? "", 80), edge.data?.taken ?? 0)}
        </li>
      ))}
    </ul>
  );
}
