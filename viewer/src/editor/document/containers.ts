/**
 * Bodies of Iterations and Loops: grouping nodes into one, and taking nodes out. Edges that would cross the border lead
 * through the container instead. Where that would change what the author drew, a sentence says so and nothing changes.
 */
import { drawnLayout, isContainer } from "../../graph/layout";
import { followEdges } from "./branches";
import { addEdge, addNodes, changeNode, madeNode, nodeOf, placeNodes, Refusal, removeEdges, startNode, withDependents, withGraphList } from "./commands";
import { quoted } from "./connections";
import { edgesOf, graphOf, newEdge, nodesOf, nodeTypeOf, rawEdges, rawNodes, STARTS, type Document, type DrawnEdge, type DrawnNode } from "./document";
import { insertItem, objectOf, removeItem, setIn, textOf, withItem, withMember, withoutMember, type JsonObject } from "./json";
import { newName, newNodeId, type Random } from "./names";

export type ContainerKind = "Iteration" | "Loop";

const PADDING = { left: 150, top: 60, right: 40, bottom: 40 };

/** Make nodes the body of a new container; return the document and the container's id. Raises Refusal. */
export function groupNodes(document: Document, ids: readonly string[], kind: ContainerKind, form: JsonObject, random?: Random): { document: Document; id: string } {
  const body = bodyOf(document, ids);
  const members = [...body].map((id) => nodeOf(document, id));
  const parent = nodeOf(document, ids[0] ?? "").parent;
  const { entries, entering, leaving } = borderOf(document, body);

  const boxes = members.filter((node) => node.parent === parent).map((node) => boxOf(document, node.id));
  const left = Math.min(...boxes.map((box) => box.x)) - PADDING.left;
  const top = Math.min(...boxes.map((box) => box.y)) - PADDING.top;
  const width = Math.max(...boxes.map((box) => box.x + box.w)) + PADDING.right - left;
  const height = Math.max(...boxes.map((box) => box.y + box.h)) + PADDING.bottom - top;

  const id = newNodeId(document, kind, random);
  const container = madeNode(id, kind, nodeTypeOf(kind), newName(document, kind), form, { x: left, y: top, parent }, { width, height });
  const start = setIn(startNode(document, id, kind, random), ["position", "y"], Math.round(height / 2 - 22)) as JsonObject;
  const startId = textOf(start.id);
  const first = rawNodes(document).findIndex((raw) => body.has(textOf(objectOf(raw).id)));
  const placed = members.filter((node) => node.parent === parent).reduce((now, node) => putInto(now, node.id, id, -left, -top), addNodes(document, [container, start], first));
  const into = reroute(placed, entering, (edge) => ({ ...edge, target: id, targetHandle: "end" }));
  const out = reroute(into, leaving, (edge) => ({ ...edge, source: id, sourceHandle: "start" }));
  return { document: entries.reduce((now, entry) => addEdge(now, { source: startId, sourceHandle: "start", target: entry, targetHandle: "end" }), containersFirst(out)), id };
}

/** Return the nodes to group with the tools and sub-agents that belong to them. */
function bodyOf(document: Document, ids: readonly string[]): ReadonlySet<string> {
  if (!ids.length) throw new Refusal("Select the nodes that are to be repeated.");
  const nodes = ids.map((id) => nodeOf(document, id));
  const [first] = nodes;
  for (const node of nodes) {
    if (node.label === "Begin") throw new Refusal("Begin cannot be repeated: a run starts there once.");
    if (node.label in STARTS) throw new Refusal("The start of a container stays in its container.");
    if (node.parent !== first?.parent) throw new Refusal("These nodes lie in different containers. Select nodes of one of them.");
    if (node.label === "ExitLoop") throw new Refusal(`${quoted(node)} ends a Loop and cannot be in another container.`);
  }
  const body = withDependents(document, ids);
  for (const edge of edgesOf(document)) {
    const belongs = edge.sourceHandle === "tool" || edge.targetHandle === "agentTop";
    if (belongs && body.has(edge.target) && !body.has(edge.source)) throw new Refusal(`${quoted(nodeOf(document, edge.target))} belongs to an Agent that is not selected. Select the Agent too.`);
  }
  return body;
}

interface Border {
  /** Nodes of the body that a step enters from outside, or that nothing leads to. */
  entries: string[];
  entering: DrawnEdge[];
  leaving: DrawnEdge[];
}

function borderOf(document: Document, body: ReadonlySet<string>): Border {
  const edges = edgesOf(document);
  const name = (id: string): string => quoted(nodeOf(document, id));
  const entering = edges.filter((edge) => !body.has(edge.source) && body.has(edge.target));
  const leaving = edges.filter((edge) => body.has(edge.source) && !body.has(edge.target));
  const inner = edges.filter((edge) => body.has(edge.source) && body.has(edge.target));
  const reached = new Set(inner.map((edge) => edge.target));
  const parent = nodesOf(document).get([...body][0] ?? "")?.parent ?? null;
  const entries = [...body].filter((id) => (entering.some((edge) => edge.target === id) || !reached.has(id)) && nodesOf(document).get(id)?.parent === parent && nodesOf(document).get(id)?.label !== "Note");

  const back = leaving.find((edge) => reaches(document, edge.target, body));
  if (back) throw new Refusal(`From ${name(back.target)} the way leads back into the selection. Select the nodes between them too.`);
  const sources = new Set(entering.map((edge) => `${edge.source} ${edge.sourceHandle}`));
  const entered = new Set(entering.map((edge) => edge.target));
  const isSame = [...sources].every((source) => entering.filter((edge) => `${edge.source} ${edge.sourceHandle}` === source).length === entered.size);
  if (sources.size > 1 && !isSame) {
    const [one, other] = [...entered];
    throw new Refusal(`Different nodes lead to ${name(one ?? "")} and to ${name(other ?? one ?? "")}: in a container both would start each time. Group them one by one.`);
  }
  const branch = leaving.find((edge) => edge.sourceHandle !== "start");
  if (branch) throw new Refusal(`A branch of ${name(branch.source)} leads out to ${name(branch.target)}: a container has one way out. Select ${name(branch.target)} too.`);
  const both = leaving.find((edge) => inner.some((each) => each.source === edge.source && each.sourceHandle === edge.sourceHandle));
  if (both) throw new Refusal(`${name(both.source)} leads both on inside and out to ${name(both.target)}, which would wait for all items. Select ${name(both.target)} too.`);
  return { entries, entering, leaving };
}

function reaches(document: Document, from: string, body: ReadonlySet<string>): boolean {
  const edges = edgesOf(document);
  const seen = new Set([from]);
  for (const id of seen) for (const edge of edges) if (edge.source === id) seen.add(edge.target);
  return [...seen].some((id) => body.has(id));
}

/** Replace edges at their places in the list; those that are the same afterwards become one. */
function reroute(document: Document, edges: readonly DrawnEdge[], change: (edge: DrawnEdge) => DrawnEdge | readonly DrawnEdge[]): Document {
  const wanted = new Set(edges.map((edge) => edge.id));
  const written = new Set<string>();
  let list = rawEdges(document);
  for (let index = 0; index < list.length; index++) {
    const raw = objectOf(list[index]);
    const edge = edges.find((each) => each.id === raw.id && each.source === raw.source && each.target === raw.target);
    if (!edge || !wanted.has(edge.id)) continue;
    const changed = [change(edge)].flat().map((each) => newEdge(each.source, each.sourceHandle, each.target, each.targetHandle));
    const [head, ...others] = changed.filter((each) => !written.has(textOf(each.id)));
    for (const each of changed) written.add(textOf(each.id));
    if (head === undefined) list = removeItem(list, index--);
    else {
      const { id, source, sourceHandle, target, targetHandle } = head;
      list = withItem(list, index, { ...raw, id, source, sourceHandle, target, targetHandle } as JsonObject);
      for (const each of others) list = insertItem(list, ++index, each);
    }
  }
  return edges.reduce((now, edge) => followEdges(now, edge.source, edge.sourceHandle), withGraphList(document, "edges", list));
}


// -- ungrouping --------------------------------------------------------------------------------------------------------
/** Remove a container and leave its body where it is. */
export function ungroup(document: Document, id: string): Document {
  const container = nodeOf(document, id);
  const children = [...nodesOf(document).values()].filter((node) => node.parent === id);
  const start = children.find((node) => node.label in STARTS);
  const exit = children.find((node) => node.label === "ExitLoop");
  if (exit) throw new Refusal(`${quoted(exit)} has a meaning only in a Loop. Delete it first.`);
  const edges = edgesOf(document);
  const entries = edges.filter((edge) => edge.source === start?.id).map((edge) => edge.target);
  const inner = new Set(children.map((node) => node.id));
  const steps = children.filter((node) => node !== start && !["Note", "Tool"].includes(node.label) && !edges.some((edge) => edge.target === node.id && edge.targetHandle === "agentTop"));
  const exits = steps.filter((node) => !edges.some((edge) => edge.source === node.id && inner.has(edge.target) && !["tool", "agentBottom"].includes(edge.sourceHandle))).map((node) => node.id);

  const into = reroute(document, edges.filter((edge) => edge.target === id), (edge) => entries.map((entry) => ({ ...edge, target: entry })));
  const out = reroute(into, edgesOf(into).filter((edge) => edge.source === id), (edge) => exits.map((source) => ({ ...edge, source, sourceHandle: "start" })));
  const { x, y } = objectOf(container.raw.position);
  const freed = children.filter((node) => node !== start).reduce((now, node) => putInto(now, node.id, container.parent, Number(x ?? 0), Number(y ?? 0)), out);
  const gone = new Set([id, start?.id ?? ""]);
  const unconnected = removeEdges(freed, (edge) => gone.has(edge.source) || gone.has(edge.target));
  return withGraphList(unconnected, "nodes", rawNodes(unconnected).filter((raw) => !gone.has(textOf(objectOf(raw).id))));
}

// -- one node ----------------------------------------------------------------------------------------------------------
/** Move one node, at a place of the drawing, into a container or out of it (null). Raises Refusal where the way is not clear. */
export function changeParent(document: Document, id: string, parent: string | null, place: { x: number; y: number }): Document {
  const node = nodeOf(document, id);
  if (node.parent === parent) return document;
  if (node.label === "Begin" || node.label in STARTS) throw new Refusal(`${quoted(node)} stays where a run or a body starts.`);
  if (parent !== null && withDependents(document, [id]).has(parent)) throw new Refusal(`${quoted(node)} cannot lie in itself.`);
  const edges = edgesOf(document).filter((edge) => edge.source === id || edge.target === id);
  if (edges.some((edge) => edge.target === id && (edge.sourceHandle === "tool" || edge.targetHandle === "agentTop"))) throw new Refusal(`${quoted(node)} belongs to an Agent and moves with it.`);
  const way = parent === null ? [] : outerContainers(document, parent);
  const entered = way[way.indexOf(node.parent ?? "") + 1]; // the next container on the way in
  const isOut = node.parent !== null && !way.includes(node.parent);
  const next = isOut || entered === undefined ? nodeOf(document, node.parent ?? "").parent : entered;
  const flow = edges.filter((edge) => edge.sourceHandle !== "tool" && edge.targetHandle !== "agentTop");
  const rerouted = isOut || entered === undefined ? leaveContainer(document, node, flow) : enterContainer(document, node, entered, flow);
  const moved = [...withDependents(document, [id])].filter((each) => nodesOf(document).get(each)?.parent === node.parent);
  const [from, to] = [absolutePlace(document, node.parent ?? ""), absolutePlace(document, next ?? "")];
  const shifted = moved.reduce((now, each) => putInto(now, each, next, from.x - to.x, from.y - to.y), rerouted);
  const placed = changeNode(shifted, id, (raw) => setIn(setIn(raw, ["position", "x"], Math.round(place.x - to.x)), ["position", "y"], Math.round(place.y - to.y)) as JsonObject);
  return changeParent(containersFirst(placed), id, parent, place);
}

export interface MovedNode {
  id: string;
  parent: string | null;
  /** Where it lies now, on the whole drawing. */
  place: { x: number; y: number };
}

/** Move several nodes that were dragged together, each to its place, into a container or out of it. Raises Refusal where the way is not clear. */
export function changeParents(document: Document, moved: readonly MovedNode[]): Document {
  const nodes = nodesOf(document);
  const isFollower = (id: string): boolean => moved.some((other) => other.id !== id && withDependents(document, [other.id]).has(id));
  const leading = moved.filter(({ id }) => !isFollower(id) && isFree(nodes.get(id))); // tools and sub-agents move with their Agent
  const parents = new Set(leading.map(({ parent }) => parent));
  if (parents.size > 1) throw new Refusal("These nodes would come to lie in different containers. Drag all of them into one, or one by one.");
  const changing = alongEdges(document, leading.filter(({ id, parent }) => nodes.get(id)?.parent !== parent));
  const changed = oneByOne(document, changing, changing.toReversed()); // the first or the last of a chain is next to the container
  return moved.reduce((now, { id, place }) => {
    const origin = absolutePlace(now, nodesOf(now).get(id)?.parent ?? "");
    return placeNodes(now, new Map([[id, { x: place.x - origin.x, y: place.y - origin.y }]]));
  }, changed);
}

/** Whether a node may change its container: Begin and starts stay, and tools and notes belong to none. */
function isFree(node: DrawnNode | undefined): boolean {
  return node !== undefined && node.label !== "Begin" && !(node.label in STARTS) && !["Tool", "Note"].includes(node.label);
}

/** Change the containers of nodes in the first order in which each of them can and no edge between them is lost. */
function oneByOne(document: Document, order: readonly MovedNode[], ...others: readonly (readonly MovedNode[])[]): Document {
  try {
    const changed = order.reduce((now, { id, parent, place }) => changeParent(now, id, parent, place), document);
    const ids = new Set(order.map(({ id }) => id));
    const cut = edgesOf(document).find((edge) => ids.has(edge.source) && ids.has(edge.target) && !hasEdge(changed, edge));
    if (cut) throw new Refusal(`The edge from ${quoted(nodeOf(document, cut.source))} to ${quoted(nodeOf(document, cut.target))} would be lost. Group the nodes instead, or drag them one by one.`);
    return changed;
  } catch (error) {
    const [next, ...rest] = others;
    if (!(error instanceof Refusal) || !next) throw error;
    return oneByOne(document, next, ...rest);
  }
}

/** Return nodes with those before that lead to others; in a cycle as they are. */
function alongEdges(document: Document, moved: readonly MovedNode[]): MovedNode[] {
  const rest = [...moved];
  const ordered: MovedNode[] = [];
  const edges = edgesOf(document);
  while (rest.length) {
    const first = rest.findIndex(({ id }) => !edges.some((edge) => edge.target === id && rest.some((other) => other.id === edge.source && other.id !== id)));
    ordered.push(...rest.splice(Math.max(0, first), 1));
  }
  return ordered;
}

function hasEdge(document: Document, { source, sourceHandle, target }: DrawnEdge): boolean {
  return edgesOf(document).some((edge) => edge.source === source && edge.sourceHandle === sourceHandle && edge.target === target);
}

/** Return the containers around a container and itself, from outside. */
function outerContainers(document: Document, id: string): string[] {
  const found: string[] = [];
  for (let at: string | null = id; at !== null && !found.includes(at); at = nodesOf(document).get(at)?.parent ?? null) found.unshift(at);
  return found;
}

function enterContainer(document: Document, node: DrawnNode, parent: string, flow: readonly DrawnEdge[]): Document {
  const container = nodeOf(document, parent);
  const start = [...nodesOf(document).values()].find((each) => each.parent === parent && each.label in STARTS);
  if (!start) throw new Refusal(`${quoted(container)} has no start, so nothing in it would run.`);
  const branch = flow.find((edge) => edge.source === node.id && edge.sourceHandle !== "start");
  if (branch) throw new Refusal(`${quoted(node)} has branches that lead out: a container has one way out. Group it with their targets.`);
  const before = flow.filter((edge) => edge.target === node.id && edge.source !== parent);
  const after = flow.filter((edge) => edge.source === node.id && edge.target !== parent);
  if (flow.some((edge) => edge.source === parent) && flow.some((edge) => edge.target === parent)) throw new Refusal(`${quoted(node)} lies before and after ${quoted(container)}.`);
  const edges = edgesOf(document);
  const isAfter = flow.some((edge) => edge.source === parent);
  const isBefore = flow.some((edge) => edge.target === parent);
  const inner = edges.filter((edge) => edge.source === start.id);
  const exits = exitsOf(document, parent);
  let now = removeEdges(document, (edge) => flow.some((each) => each.id === edge.id) || (isBefore && inner.some((each) => each.id === edge.id)));
  if (isBefore) for (const edge of inner) now = link(now, node.id, "start", edge.target);
  for (const edge of before) now = link(now, edge.source, edge.sourceHandle, parent);
  for (const edge of after) now = link(now, parent, "start", edge.target);
  if (isAfter && exits.length) for (const exit of exits) now = link(now, exit, "start", node.id);
  else now = link(now, start.id, "start", node.id);
  return now;
}

function leaveContainer(document: Document, node: DrawnNode, flow: readonly DrawnEdge[]): Document {
  const container = nodeOf(document, node.parent ?? "");
  const start = [...nodesOf(document).values()].find((each) => each.parent === container.id && each.label in STARTS);
  if (node.label === "ExitLoop") throw new Refusal(`${quoted(node)} has a meaning only in a Loop.`);
  const before = flow.filter((edge) => edge.target === node.id);
  const after = flow.filter((edge) => edge.source === node.id);
  const isFirst = before.every((edge) => edge.source === start?.id);
  if (!isFirst && after.length) throw new Refusal(`${quoted(node)} lies between other nodes of ${quoted(container)}. Only its first and last nodes can leave it.`);
  const branch = after.find((edge) => edge.sourceHandle !== "start");
  if (branch) throw new Refusal(`${quoted(node)} decides how ${quoted(container)} goes on, so it cannot leave it.`);
  const isEntry = isFirst && after.length > 0;
  if (isEntry && edgesOf(document).some((edge) => edge.source === start?.id && edge.target !== node.id)) throw new Refusal(`${quoted(container)} starts with other nodes too, so ${quoted(node)} cannot come before it.`);
  const edges = edgesOf(document);
  let now = removeEdges(document, (edge) => flow.some((each) => each.id === edge.id));
  if (isEntry) {
    for (const edge of after) now = link(now, start?.id ?? "", "start", edge.target);
    for (const edge of edges.filter((each) => each.target === container.id)) now = link(removeEdges(now, (each) => each.id === edge.id), edge.source, edge.sourceHandle, node.id);
    return link(now, node.id, "start", container.id);
  }
  for (const edge of edges.filter((each) => each.source === container.id)) now = link(removeEdges(now, (each) => each.id === edge.id), node.id, "start", edge.target);
  return before.length ? link(now, container.id, "start", node.id) : now;
}

function link(document: Document, source: string, sourceHandle: string, target: string): Document {
  const isKnown = edgesOf(document).some((edge) => edge.source === source && edge.sourceHandle === sourceHandle && edge.target === target);
  return isKnown ? document : addEdge(document, { source, sourceHandle, target, targetHandle: "end" });
}

function exitsOf(document: Document, container: string): string[] {
  const children = [...nodesOf(document).values()].filter((node) => node.parent === container && !(node.label in STARTS) && !["Note", "Tool", "ExitLoop"].includes(node.label));
  const edges = edgesOf(document);
  return children.filter((node) => !["Switch", "Categorize"].includes(node.label) && !edges.some((edge) => edge.target === node.id && edge.targetHandle === "agentTop") && !edges.some((edge) => edge.source === node.id && edge.sourceHandle === "start")).map((node) => node.id);
}

// -- places ------------------------------------------------------------------------------------------------------------
function putInto(document: Document, id: string, parent: string | null, dx: number, dy: number): Document {
  return changeNode(document, id, (raw) => {
    const { x, y } = objectOf(raw.position);
    const moved = setIn(setIn(raw, ["position", "x"], Number(x ?? 0) + dx), ["position", "y"], Number(y ?? 0) + dy) as JsonObject;
    return parent === null ? withoutMember(withoutMember(moved, "parentId"), "extent") : withMember(withMember(moved, "parentId", parent), "extent", "parent");
  });
}

/** Return the document with containers before their bodies, as RAGFlow's editor needs it. */
export function containersFirst(document: Document): Document {
  const list = rawNodes(document);
  const at = list.findIndex((raw, index) => list.findIndex((other) => objectOf(other).id === objectOf(raw).parentId) > index);
  if (at < 0) return document;
  const rest = removeItem(list, at);
  const place = rest.findIndex((raw) => objectOf(raw).id === objectOf(list[at]).parentId) + 1;
  return containersFirst(withGraphList(document, "nodes", insertItem(rest, place, list[at] ?? null)));
}

function boxOf(document: Document, id: string): { x: number; y: number; w: number; h: number } {
  return drawnLayout(graphOf(document)).get(id) ?? { x: 0, y: 0, w: 200, h: 49 };
}

/** Return where a node lies on the whole drawing. */
export function absolutePlace(document: Document, id: string): { x: number; y: number } {
  const node = nodesOf(document).get(id);
  if (!node) return { x: 0, y: 0 };
  const { x, y } = objectOf(node.raw.position);
  const outer = node.parent === null ? { x: 0, y: 0 } : absolutePlace(document, node.parent);
  return { x: Number(x ?? 0) + outer.x, y: Number(y ?? 0) + outer.y };
}

/** Return the innermost container at a place of the drawing; null if there is none. */
export function containerAt(document: Document, at: { x: number; y: number }, except: ReadonlySet<string>): string | null {
  const graph = graphOf(document);
  const layout = drawnLayout(graph);
  const hits = graph.nodes.filter((node) => {
    const box = layout.get(node.id);
    if (!isContainer(node) || !box || except.has(node.id)) return false;
    const place = absolutePlace(document, node.id);
    return at.x >= place.x && at.y >= place.y && at.x <= place.x + box.w && at.y <= place.y + box.h;
  });
  return hits.at(-1)?.id ?? null;
}
