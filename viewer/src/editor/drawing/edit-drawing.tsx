/** The drawing that is edited: dragging, connecting, dropping, selecting; the nodes are those of a run's drawing. */
import {
  ReactFlow, ReactFlowProvider, SelectionMode, useReactFlow, type Connection as FlowConnection, type FinalConnectionState, type NodeChange, type Viewport,
} from "@xyflow/react";
import { useCallback, useEffect, useMemo, useRef, useState, type DragEvent, type MouseEvent, type ReactNode, type RefObject } from "react";

import { EdgeList, nodeTypes, type RunNode } from "../../graph/drawing";
import { drawnLayout } from "../../graph/layout";
import { NodeEditingContext, type NodeEditing } from "../../graph/node-editing";
import { useRunState } from "../../run/use-run";
import { takenEdges } from "../../store/edges";
import { isOver } from "../../store/run-status";
import { texts } from "../../texts";
import { Button } from "../../ui/parts";
import { useShortcut } from "../../ui/shortcuts";
import { ComponentIcon } from "../component-icon";
import { connect, fitContainers, moveNodes, placeNodes, withDependents } from "../document/commands";
import { connectionProblem, targetHandleFor } from "../document/connections";
import { absolutePlace, changeParents, containerAt } from "../document/containers";
import { nodesOf, type Document } from "../document/document";
import { findingsOf, useDraft, useEditor, useSelection } from "../editor-context";
import { parseView, writeView } from "../editor-search";
import { addAtPlace, COMPONENT_TYPE, componentNamed, giveTool } from "../palette-actions";
import { DrawnOnce, FlowElements, type Places } from "./flow-elements";
import { NodeExtras } from "./node-extras";

const t = texts.editor;
const FIT = { padding: 0.1, maxZoom: 1 };
const STEP = 10;
const MULTIPLE = ["Control", "Meta"];
const NO_PLACES: Places = new Map();
const NO_DOCUMENT: Document = {};

interface Props {
  view: string | undefined;
  onView: (view: string) => void;
}

export function EditDrawing(props: Props): ReactNode {
  return (
    <ReactFlowProvider>
      <Flow {...props} />
    </ReactFlowProvider>
  );
}

function Flow({ view, onView }: Props): ReactNode {
  const { isReadOnly, select, session } = useEditor();
  const [once] = useState(() => new DrawnOnce());
  const drawn = useDraft((state) => once.of(state.document ?? NO_DOCUMENT));
  const { graph } = drawn;
  const selection = useSelection();
  const [dragged, setDragged] = useState(NO_PLACES);
  const [made] = useState(() => new FlowElements());
  const run = useRunState();
  const layout = useMemo(() => drawnLayout(graph), [graph]);
  const selectedNodes = useMemo(() => new Set(selection.nodes), [selection.nodes]);
  const selectedEdges = useMemo(() => new Set(selection.edges), [selection.edges]);
  const nodes = useMemo(() => made.nodesOf(drawn, layout, selectedNodes, dragged, isReadOnly), [made, drawn, layout, selectedNodes, dragged, isReadOnly]);
  const edges = useMemo(() => made.edgesOf(drawn, selectedEdges, takenEdges(run), run.header !== null && isOver(run.header.status)), [made, drawn, selectedEdges, run]);
  const editing = useNodeEditing();
  const connecting = useConnecting();
  const dropping = useDropping();
  const onDragEnd = useDragStop();
  const pane = useRef<HTMLElement>(null);
  const noteView = useNoteView(pane, onView);
  // xyflow looks at each node and edge again when one of its handlers changes, so they stay the same while nodes are dragged
  const handlers = useMemo(() => {
    const onDragStop = (_: unknown, __: RunNode | null, moved: RunNode[]): void => {
      setDragged(NO_PLACES);
      onDragEnd(moved);
    };
    return {
      onEdgeClick: (_: unknown, edge: { id: string }) => select({ nodes: [], edges: [edge.id] }),
      onPaneClick: () => select({ nodes: [], edges: [] }),
      onNodeDragStart: () => session.closeStep(),
      onNodeDragStop: onDragStop,
      onSelectionDragStop: (event: unknown, moved: RunNode[]) => onDragStop(event, moved[0] ?? null, moved),
      onMoveEnd: (event: unknown, viewport: Viewport) => {
        if (event) noteView(viewport);
      },
    };
  }, [select, session, onDragEnd, noteView]);

  const onNodesChange = useCallback(
    (changes: NodeChange<RunNode>[]) => {
      const moved = changes.flatMap((change) => (change.type === "position" && change.dragging && change.position ? [[change.id, change.position] as const] : []));
      if (moved.length) setDragged((known) => new Map([...known, ...moved]));
      const picked = changes.filter((change) => change.type === "select");
      if (!picked.length) return;
      const now = new Set(selection.nodes);
      for (const change of picked) {
        if (change.selected) now.add(change.id);
        else now.delete(change.id);
      }
      select({ nodes: [...now] });
    },
    [selection.nodes, select],
  );

  return (
    <section ref={pane} data-canvas tabIndex={-1} aria-label={t.drawing.region} className="relative min-h-0 flex-1 overflow-hidden outline-none" {...dropping}>
      <NodeEditingContext value={editing}>
        <ReactFlow
          nodes={nodes}
          edges={edges}
          nodeTypes={nodeTypes}
          onNodesChange={onNodesChange}
          {...handlers}
          {...connecting}
          nodesConnectable={!isReadOnly}
          nodesFocusable={false}
          edgesFocusable={false}
          elementsSelectable
          selectNodesOnDrag={false}
          selectionMode={SelectionMode.Partial}
          selectionKeyCode="Shift"
          multiSelectionKeyCode={MULTIPLE}
          deleteKeyCode={null}
          panActivationKeyCode={null}
          disableKeyboardA11y
          zoomOnDoubleClick={false}
          connectionRadius={24}
          nodeDragThreshold={3}
          elevateNodesOnSelect={false}
          minZoom={0.1}
          maxZoom={2}
          onlyRenderVisibleElements={graph.nodes.length > 300}
        />
      </NodeEditingContext>
      {graph.nodes.length ? null : <p className="pointer-events-none absolute inset-x-0 top-1/3 text-center text-ink-2">{t.drawing.hint}</p>}
      <Camera view={view} pane={pane} noteView={noteView} />
      <EdgeList graph={graph} edges={edges} />
    </section>
  );
}

// -- nodes -------------------------------------------------------------------------------------------------------------
const MOVES: Readonly<Record<string, readonly [number, number]>> = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] };

function useNodeEditing(): NodeEditing {
  const editor = useEditor();
  const selection = useSelection();
  const latest = useRef(selection);
  useEffect(() => {
    latest.current = selection;
  });
  return useMemo(() => {
    const { catalogue, isReadOnly, perform, select, session } = editor;
    const withNode = (id: string): readonly string[] => (latest.current.nodes.includes(id) ? latest.current.nodes : [id]);
    const onMove = (id: string, [dx, dy]: readonly [number, number]): void => {
      const ids = withNode(id);
      select({ nodes: ids, edges: [] });
      if (!isReadOnly) perform(t.done.move, (document) => fitContainers(moveNodes(document, ids, dx, dy), ids), `move ${ids.join(" ")}`);
    };
    return {
      Extras: NodeExtras,
      iconOf: ({ component }) => <ComponentIcon component={component} group={catalogue.components.find((each) => each.name === component)?.group ?? ""} />,
      describe: ({ id }) => t.drawing.findings(findingsOf(session.getState().findings, id).length),
      onClick: (id, event: MouseEvent) => {
        const isMore = event.shiftKey || event.ctrlKey || event.metaKey;
        const known = latest.current.nodes;
        if (!isMore) select({ nodes: [id], edges: [] });
        else if (event.detail === 0) select({ nodes: known.includes(id) ? known.filter((each) => each !== id) : [...known, id], edges: [] }); // a pointer's click xyflow counts itself
      },
      onKeyDown: (id, event) => {
        const move = MOVES[event.key];
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        if (move) onMove(id, move);
        else if (event.key === "Enter" && latest.current.nodes.includes(id)) editor.focusField({ nodeId: id, field: null });
        else return;
        event.preventDefault();
      },
    };
  }, [editor]);
}

/** Return what is done when nodes have been dragged. */
function useDragStop(): (moved: readonly RunNode[]) => void {
  const { perform, session } = useEditor();
  return useCallback(
    (moved) => {
      const document = session.getState().document;
      if (!document || !moved.length) return;
      const places = new Map(moved.map((node) => [node.id, node.position]));
      const hasMoved = moved.some((node) => {
        const raw = nodesOf(document).get(node.id)?.raw.position;
        return JSON.stringify(raw) !== JSON.stringify({ x: Math.round(node.position.x), y: Math.round(node.position.y) });
      });
      if (!hasMoved) return;
      const targets = moved.map((node) => ({ id: node.id, ...parentFor(document, node, moved) }));
      if (targets.some(({ id, parent }) => parent !== (nodesOf(document).get(id)?.parent ?? null))) {
        perform(t.done.container, (now) => fitContainers(changeParents(now, targets), [...places.keys()]));
        return;
      }
      perform(t.done.move, (now) => fitContainers(placeNodes(now, places), [...places.keys()]));
    },
    [perform, session],
  );
}

/** Return where a node that was dragged to a place, with others, belongs. */
function parentFor(document: Document, node: RunNode, moved: readonly RunNode[]): { parent: string | null; place: { x: number; y: number } } {
  const known = nodesOf(document).get(node.id);
  const origin = known?.parent == null ? { x: 0, y: 0 } : absolutePlace(document, known.parent);
  const place = { x: node.position.x + origin.x, y: node.position.y + origin.y };
  const center = { x: place.x + (node.width ?? 0) / 2, y: place.y + (node.height ?? 0) / 2 };
  const isFixed = known?.id === "begin" || known?.label.endsWith("Item") || ["Tool", "Note"].includes(known?.label ?? "");
  const own = withDependents(document, moved.map((each) => each.id));
  return { parent: isFixed ? (known?.parent ?? null) : containerAt(document, center, own), place };
}

// -- edges -------------------------------------------------------------------------------------------------------------
function useConnecting() {
  const { perform, notify, session } = useEditor();
  return useMemo(() => {
    const problemOf = (connection: FlowConnection | { source: string; target: string; sourceHandle?: string | null; targetHandle?: string | null }): string | null => {
      const { source, target, sourceHandle, targetHandle } = connection;
      return connectionProblem(session.getState().document ?? {}, { source, target, sourceHandle: sourceHandle ?? "start", targetHandle: targetHandle ?? "end" });
    };
    return {
      isValidConnection: (connection: Parameters<typeof problemOf>[0]) => problemOf(connection) === null,
      onConnect: ({ source, target, sourceHandle, targetHandle }: FlowConnection) =>
        perform(t.done.connect, (document) => connect(document, { source, target, sourceHandle: sourceHandle ?? "start", targetHandle: targetHandle ?? "end" })),
      /** An edge may end anywhere on a node; where it may not, a sentence says why. */
      onConnectEnd: (event: globalThis.MouseEvent | TouchEvent, state: FinalConnectionState) => {
        if (state.isValid || !state.fromNode || !state.fromHandle) return;
        const target = state.toNode?.id ?? nodeUnder(event);
        if (target === null || target === undefined) return;
        const from = state.fromHandle.id ?? "start";
        if (state.fromHandle.type !== "source") {
          const problem = problemOf({ source: target, target: state.fromNode.id, sourceHandle: state.toHandle?.id ?? "start", targetHandle: from });
          if (problem !== null) notify(problem, true);
          return;
        }
        if (target === state.fromNode.id && !state.toHandle) return; // the pointer has not left the node
        const connection = { source: state.fromNode.id, sourceHandle: from, target, targetHandle: targetHandleFor(from) };
        perform(t.done.connect, (document) => connect(document, connection));
      },
    };
  }, [perform, notify, session]);
}

function nodeUnder(event: globalThis.MouseEvent | TouchEvent): string | null {
  const point = "clientX" in event ? event : event.changedTouches[0];
  if (!point) return null;
  const element = window.document.elementFromPoint(point.clientX, point.clientY)?.closest<HTMLElement>("[data-testid=node]");
  return element?.dataset.nodeId ?? null;
}

// -- dropping ----------------------------------------------------------------------------------------------------------
function useDropping() {
  const editor = useEditor();
  const { screenToFlowPosition } = useReactFlow();
  const isOurs = (event: DragEvent): boolean => event.dataTransfer.types.includes(COMPONENT_TYPE);
  return {
    onDragOver: (event: DragEvent) => {
      if (!isOurs(event) || editor.isReadOnly) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = "copy";
    },
    onDrop: (event: DragEvent) => {
      if (!isOurs(event) || editor.isReadOnly) return;
      event.preventDefault();
      event.stopPropagation();
      const component = componentNamed(editor, event.dataTransfer.getData(COMPONENT_TYPE));
      if (!component) return;
      const under = window.document.elementsFromPoint(event.clientX, event.clientY);
      const node = under.map((element) => element.closest<HTMLElement>("[data-testid=node]")?.dataset.nodeId).find((id) => id !== undefined);
      const edge = under.map((element) => element.closest(".react-flow__edge")?.getAttribute("data-id")).find((id) => typeof id === "string") ?? null;
      const label = node === undefined ? undefined : nodesOf(editor.session.getState().document ?? {}).get(node)?.label;
      if (node !== undefined && label === "Agent" && giveTool(editor, component.name, node)) return;
      addAtPlace(editor, component, screenToFlowPosition({ x: event.clientX, y: event.clientY }), edge);
    },
  };
}

// -- camera ------------------------------------------------------------------------------------------------------------
/** Return what notes the view in the address, a moment after it was moved. */
function useNoteView(pane: RefObject<HTMLElement | null>, onView: (view: string) => void): (viewport: Viewport) => void {
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  useEffect(
    () => () => {
      if (timer.current !== null) clearTimeout(timer.current);
    },
    [],
  );
  const latest = useRef(onView);
  useEffect(() => {
    latest.current = onView;
  });
  return useCallback(
    ({ x, y, zoom }) => {
      if (timer.current !== null) clearTimeout(timer.current);
      timer.current = setTimeout(() => {
        const box = pane.current?.getBoundingClientRect();
        if (box?.width) latest.current(writeView({ zoom, x: (box.width / 2 - x) / zoom, y: (box.height / 2 - y) / zoom }));
      }, 300);
    },
    [pane],
  );
}

function Camera({ view, pane, noteView }: { view: string | undefined; pane: RefObject<HTMLElement | null>; noteView: (viewport: Viewport) => void }): ReactNode {
  const { fitView, zoomIn, zoomOut, zoomTo, setCenter, getViewport, screenToFlowPosition, viewportInitialized } = useReactFlow();
  const { camera } = useEditor();
  const selection = useSelection();
  const initial = useRef(view);

  useEffect(() => {
    if (!viewportInitialized) return;
    const known = parseView(initial.current);
    if (known) void setCenter(known.x, known.y, { zoom: known.zoom });
    else void fitView(FIT);
  }, [viewportInitialized, setCenter, fitView]);

  useEffect(() => {
    camera.current = {
      center: () => {
        const box = pane.current?.getBoundingClientRect();
        return box ? screenToFlowPosition({ x: box.x + box.width / 2, y: box.y + box.height / 2 }) : { x: 0, y: 0 };
      },
      fit: () => void requestAnimationFrame(() => void fitView(FIT)),
    };
  }, [camera, pane, screenToFlowPosition, fitView]);

  const then = (moved: Promise<boolean>): void => void moved.then(() => noteView(getViewport()));
  const fit = (): void => then(fitView({ ...FIT, ...(selection.nodes.length > 1 ? { nodes: selection.nodes.map((id) => ({ id })) } : {}) }));
  useShortcut("0", texts.camera.fit, fit);
  useShortcut("1", texts.camera.actual, () => then(zoomTo(1)));
  useShortcut("+", texts.camera.in, () => then(zoomIn()));
  useShortcut("-", texts.camera.out, () => then(zoomOut()));
  return (
    <div className="absolute right-2 bottom-8 z-10 flex gap-1">
      <Button aria-label={texts.graph.zoomOut} onClick={() => then(zoomOut())}>
        −
      </Button>
      <Button aria-label={texts.graph.zoomIn} onClick={() => then(zoomIn())}>
        +
      </Button>
      <Button onClick={fit}>{texts.graph.fit}</Button>
    </div>
  );
}
