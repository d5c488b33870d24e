/** Adding what the palette has: to the drawing, onto an edge, or to an Agent. */
import type { ComponentDescription } from "../catalogue/catalogue";
import { isContainer } from "../graph/layout";
import { texts } from "../texts";
import { visibleName } from "../ui/visible-text";
import { addNode, addTool, fitContainers, insertOnEdge } from "./document/commands";
import { absolutePlace, containerAt } from "./document/containers";
import { edgesOf, graphOf, nodesOf, STARTS, type Document } from "./document/document";
import type { Editor } from "./editor-context";

export const COMPONENT_TYPE = "application/x-easel-component";
const STEP = { x: 240, y: 90 };
const REACH = 6;

export function componentNamed({ catalogue }: Pick<Editor, "catalogue">, name: string): ComponentDescription | null {
  return catalogue.components.find((each) => each.name === name) ?? catalogue.tools.find((each) => each.name === name) ?? null;
}

/** Return why a component cannot be added; null if it can. */
export function addingProblem(document: Document, component: ComponentDescription): string | null {
  const t = texts.editor.palette;
  if (component.name in STARTS) return t.startHint;
  return component.name === "Begin" && nodesOf(document).has("begin") ? t.beginHint : null;
}

/** Give an Agent a tool; return whether the component is one. */
export function giveTool(editor: Editor, name: string, agentId: string): boolean {
  const tool = editor.catalogue.tools.find((each) => each.name === name);
  if (!tool) return false;
  const isDone = editor.perform(texts.editor.done.add(name), (document) => addTool(document, agentId, tool));
  if (isDone) editor.select({ nodes: [agentId], edges: [] });
  return true;
}

/** Add a node at a place of the drawing; on an edge it is inserted there, and in a container it belongs to its body. */
export function addAtPlace(editor: Editor, component: ComponentDescription, at: { x: number; y: number }, edgeId: string | null = null): void {
  let added = "";
  const name = visibleName(component.title, 60);
  const isDone = editor.perform(texts.editor.done.add(name), (document) => {
    const edge = edgesOf(document).find((each) => each.id === edgeId);
    const parent = edge ? (nodesOf(document).get(edge.source)?.parent ?? null) : containerAt(document, at, new Set());
    const origin = parent === null ? { x: 0, y: 0 } : absolutePlace(document, parent);
    const half = component.kind === "container" ? { x: 280, y: 130 } : { x: 100, y: 25 };
    const made = addNode(document, component, { x: at.x - origin.x - half.x, y: at.y - origin.y - half.y, parent });
    added = made.id;
    const fitted = fitContainers(made.document, [made.id]);
    return edge ? insertOnEdge(fitted, made.id, edge.id) : fitted;
  });
  if (!isDone) return;
  editor.select({ nodes: [added], edges: [] });
  editor.notify(texts.editor.palette.added(name));
}

/** Add a node in the middle of the view, where none lies yet; with a container selected, into it. */
export function addInView(editor: Editor, component: ComponentDescription, selected: readonly string[]): void {
  const document = editor.session.getState().document ?? {};
  const [only] = selected.length === 1 ? selected : [];
  const node = nodesOf(document).get(only ?? "");
  const container = node && ["Iteration", "Loop"].includes(node.label) ? node.id : (node?.parent ?? null);
  const at = container === null ? editor.camera.current.center() : middleOf(document, container);
  addAtPlace(editor, component, freePlace(document, at));
}

/** Return the place nearest to one where no node lies yet. */
function freePlace(document: Document, at: { x: number; y: number }): { x: number; y: number } {
  const taken = graphOf(document)
    .nodes.filter((node) => !isContainer(node))
    .map((node) => absolutePlace(document, node.id));
  const steps = Array.from({ length: (2 * REACH + 1) ** 2 }, (_, index) => [(index % (2 * REACH + 1)) - REACH, Math.floor(index / (2 * REACH + 1)) - REACH] as const);
  const places = steps.map(([x, y]) => ({ x: at.x + x * STEP.x, y: at.y + y * STEP.y })).sort((a, b) => distance(a, at) - distance(b, at));
  return places.find((place) => taken.every(({ x, y }) => Math.abs(x + 100 - place.x) >= STEP.x - 10 || Math.abs(y + 25 - place.y) >= STEP.y - 10)) ?? at;
}

function distance(one: { x: number; y: number }, other: { x: number; y: number }): number {
  return Math.hypot(one.x - other.x, 2 * (one.y - other.y));
}

function middleOf(document: Document, id: string): { x: number; y: number } {
  const place = absolutePlace(document, id);
  const { width, height } = nodesOf(document).get(id)?.raw ?? {};
  return { x: place.x + (typeof width === "number" ? width : 560) / 2, y: place.y + (typeof height === "number" ? height : 260) / 2 };
}
