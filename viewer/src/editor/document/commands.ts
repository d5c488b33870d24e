/**
 * What an author does, each as a function from one document to the next. A document is never changed in place, and what
 * a command does not touch stays the same object; the JSON Patch between two documents is found by comparing them.
 */
import type { ComponentDescription } from "../../catalogue/catalogue";
import type { FormChange } from "../../node-form/contract";
import { followBranches, followEdges, withHandlesOfCategories } from "./branches";
import { connectionProblem, quoted, targetHandleFor, type Connection } from "./connections";
import { BEGIN, edgesOf, graphOf, newEdge, nodesOf, nodeTypeOf, rawEdges, rawNodes, setPlace, STARTS, type Document, type DrawnNode } from "./document";
import { insertItem, listOf, objectOf, removeItem, setIn, textOf, withMember, withoutMember, type Json, type JsonObject } from "./json";
import { drawnLayout } from "../../graph/layout";
import { newName, newNodeId, type Random } from "./names";

/** A command that cannot be done; the message says why, in a sentence. Nothing has changed. */
export class Refusal extends Error {}

export interface Place {
  x: number;
  y: number;
  parent: string | null;
}

// -- lists of the drawing ----------------------------------------------------------------------------------------------
export function indexOfNode(document: Document, id: string): number {
  return rawNodes(document).findIndex((raw) => objectOf(raw).id === id);
}

export function nodeOf(document: Document, id: string): DrawnNode {
  const node = nodesOf(document).get(id);
  if (!node) throw new Refusal("This node does not exist any more.");
  return node;
}

export function withGraphList(document: Document, key: "nodes" | "edges", list: readonly Json[]): Document {
  return setIn(document, ["graph", key], list) as Document;
}

export function addNodes(document: Document, nodes: readonly JsonObject[], at: number = rawNodes(document).length): Document {
  return withGraphList(document, "nodes", nodes.reduce((list, node, index) => insertItem(list, at + index, node), rawNodes(document)));
}

export function changeNode(document: Document, id: string, change: (raw: JsonObject) => JsonObject): Document {
  const index = indexOfNode(document, id);
  return index < 0 ? document : (setIn(document, ["graph", "nodes", index], change(objectOf(rawNodes(document)[index]))) as Document);
}

/** Add an edge, and note it in the form of a Switch. */
export function addEdge(document: Document, { source, sourceHandle, target, targetHandle }: Connection): Document {
  const edge = newEdge(source, sourceHandle, target, targetHandle);
  const isKnown = rawEdges(document).some((raw) => objectOf(raw).id === edge.id);
  const added = isKnown ? withMember(edge, "id", `${textOf(edge.id)} ${rawEdges(document).length}`) : edge;
  return followEdges(withGraphList(document, "edges", insertItem(rawEdges(document), rawEdges(document).length, added)), source, sourceHandle);
}

/** Remove the edges that meet a condition, and note it in the forms of Switches. */
export function removeEdges(document: Document, condition: (edge: Connection & { id: string }) => boolean): Document {
  const removed = edgesOf(document).filter(condition);
  const gone = new Set(removed);
  if (!gone.size) return document;
  const key = ({ source, sourceHandle, target, targetHandle }: Connection): string => JSON.stringify([source, sourceHandle, target, targetHandle]);
  const keys = new Set(removed.map(key));
  const list = rawEdges(document);
  let rest = list;
  for (let index = list.length - 1; index >= 0; index--) {
    const raw = objectOf(list[index]);
    const edge = { source: textOf(raw.source), sourceHandle: textOf(raw.sourceHandle) || "start", target: textOf(raw.target), targetHandle: textOf(raw.targetHandle) || "end" };
    if (keys.has(key(edge))) rest = removeItem(rest, index);
  }
  return removed.reduce((now, edge) => followEdges(now, edge.source, edge.sourceHandle), withGraphList(document, "edges", rest));
}

// -- adding ------------------------------------------------------------------------------------------------------------
/** Return the document with a new node, and its id. A container gets its start node. */
export function addNode(document: Document, component: ComponentDescription, place: Place, random?: Random): { document: Document; id: string } {
  const { name: label } = component;
  if (label === "Begin" && nodesOf(document).has(BEGIN)) throw new Refusal("An agent has one Begin, and a run starts there.");
  if (label in STARTS) throw new Refusal("The start of a container comes with its container.");
  const id = label === "Begin" ? BEGIN : newNodeId(document, label, random);
  const form = structuredClone(component.defaults) as JsonObject;
  const size = component.kind === "container" ? { width: 560, height: 260 } : {};
  const node = madeNode(id, label, component.nodeType, newName(document, component.title), form, place, size);
  const added = addNodes(document, component.kind === "container" ? [node, startNode(document, id, label, random)] : [node]);
  return { document: withHandlesOfCategories(added, id), id };
}

export function madeNode(id: string, label: string, type: string, name: string, form: JsonObject, { x, y, parent }: Place, size: JsonObject = {}): JsonObject {
  return {
    id,
    type: type || nodeTypeOf(label),
    position: { x: Math.round(x), y: Math.round(y) },
    ...size,
    ...(parent === null ? {} : { parentId: parent, extent: "parent" }),
    data: { label, name, form },
    sourcePosition: "right",
    targetPosition: "left",
  };
}

/** Return the start node of a new container. */
export function startNode(document: Document, container: string, label: string, random?: Random): JsonObject {
  const [start = "IterationItem"] = Object.entries(STARTS).find(([, each]) => each.container === label) ?? [];
  return madeNode(newNodeId(document, start, random), start, nodeTypeOf(start), start, START_FORMS[start] ?? {}, { x: 40, y: 108, parent: container });
}

const START_FORMS: Readonly<Record<string, JsonObject>> = {
  IterationItem: { outputs: { item: { type: "unknown", value: "" }, index: { type: "integer", value: "" } } },
};

/** Give an Agent a tool: it stands in the Agent's form, and one node below shows all of them. */
export function addTool(document: Document, agentId: string, tool: { name: string; defaults: Readonly<Record<string, unknown>> }, random?: Random): Document {
  const agent = nodeOf(document, agentId);
  if (agent.label !== "Agent") throw new Refusal(`${quoted(agent)} is no Agent, so it has no tools.`);
  const tools = listOf(agent.form.tools);
  const entry: JsonObject = { component_name: tool.name, name: tool.name, params: structuredClone(tool.defaults) as JsonObject };
  const index = indexOfNode(document, agentId);
  const changed = setIn(document, ["graph", "nodes", index, "data", "form", "tools"], insertItem(tools, tools.length, entry)) as Document;
  return withToolNode(changed, agentId, random);
}

/** Return the document with a node for the tools of an Agent, if it has tools. */
function withToolNode(document: Document, agentId: string, random?: Random): Document {
  const agent = nodeOf(document, agentId);
  if (edgesOf(document).some((edge) => edge.source === agentId && edge.sourceHandle === "tool")) return document;
  const id = newNodeId(document, "Tool", random);
  const position = objectOf(agent.raw.position);
  const place = { x: Number(position.x ?? 0) - 60, y: Number(position.y ?? 0) + 140, parent: agent.parent };
  const count = [...nodesOf(document).values()].filter((node) => node.label === "Tool").length;
  const form = { description: "This is an agent for a specific task.", user_prompt: "This is the order you need to send to the agent." };
  return addEdge(addNodes(document, [madeNode(id, "Tool", "toolNode", `flow.tool_${count}`, form, place)]), { source: agentId, sourceHandle: "tool", target: id, targetHandle: "end" });
}

// -- connecting --------------------------------------------------------------------------------------------------------
/** Connect two handles. Raises Refusal with the reason. */
export function connect(document: Document, connection: Connection): Document {
  const problem = connectionProblem(document, connection);
  if (problem !== null) throw new Refusal(problem);
  return addEdge(document, connection);
}

export function disconnect(document: Document, edgeIds: readonly string[]): Document {
  return removeEdges(document, (edge) => edgeIds.includes(edge.id));
}

/** Put a node, which has no edges yet, between both ends of an edge. */
export function insertOnEdge(document: Document, nodeId: string, edgeId: string): Document {
  const edge = edgesOf(document).find((each) => each.id === edgeId);
  if (!edge) throw new Refusal("This edge does not exist any more.");
  const cut = disconnect(document, [edgeId]);
  const entered = connect(cut, { source: edge.source, sourceHandle: edge.sourceHandle, target: nodeId, targetHandle: targetHandleFor(edge.sourceHandle) });
  const [way] = outOf(nodeOf(entered, nodeId));
  return way === undefined ? entered : connect(entered, { source: nodeId, sourceHandle: way, target: edge.target, targetHandle: edge.targetHandle });
}

function outOf(node: DrawnNode): string[] {
  if (node.label === "Switch") return ["end_cpn_ids"];
  return ["Categorize", "ExitLoop"].includes(node.label) ? [] : ["start"];
}

// -- deleting ----------------------------------------------------------------------------------------------------------
/** Delete nodes with what belongs to them alone: bodies of containers, tools and sub-agents of Agents, edges. */
export function deleteNodes(document: Document, ids: readonly string[]): Document {
  const wanted = ids.filter((id) => {
    const node = nodesOf(document).get(id);
    return node && node.id !== BEGIN && !(node.label in STARTS && !ids.includes(node.parent ?? ""));
  });
  if (!wanted.length) throw new Refusal("Begin and the starts of containers stay: a run and a body start there.");
  const gone = withDependents(document, wanted);
  const withoutTools = edgesOf(document)
    .filter((edge) => edge.sourceHandle === "tool" && gone.has(edge.target) && !gone.has(edge.source))
    .reduce((now, edge) => withoutToolsOf(now, edge.source), document);
  const unconnected = removeEdges(withoutTools, (edge) => gone.has(edge.source) || gone.has(edge.target));
  const list = rawNodes(unconnected);
  let rest = list;
  for (let index = list.length - 1; index >= 0; index--) if (gone.has(textOf(objectOf(list[index]).id))) rest = removeItem(rest, index);
  return withGraphList(unconnected, "nodes", rest);
}

/** Return nodes with the bodies of containers and the tools and sub-agents of Agents among them. */
export function withDependents(document: Document, ids: readonly string[]): ReadonlySet<string> {
  const found = new Set(ids);
  const edges = edgesOf(document).filter((edge) => edge.sourceHandle === "tool" || edge.targetHandle === "agentTop");
  for (const id of found) {
    for (const node of nodesOf(document).values()) if (node.parent === id) found.add(node.id);
    for (const edge of edges) if (edge.source === id) found.add(edge.target);
  }
  return found;
}

function withoutToolsOf(document: Document, agentId: string): Document {
  return changeNode(document, agentId, (raw) => {
    const form = objectOf(objectOf(raw.data).form);
    const emptied = ["tools", "mcp"].reduce((now, key) => (listOf(now[key]).length ? withMember(now, key, []) : now), form);
    return setIn(raw, ["data", "form"], emptied) as JsonObject;
  });
}

// -- changing ----------------------------------------------------------------------------------------------------------
/** Change the form of a node; edges follow its branches, and the node of its tools follows its tools. */
export function changeForm(document: Document, nodeId: string, change: FormChange, random?: Random): Document {
  const index = indexOfNode(document, nodeId);
  if (index < 0) throw new Refusal("This node does not exist any more.");
  const path = ["graph", "nodes", index, "data", "form", ...change.path];
  const changed = setIn(document, path, change.value as Json | undefined) as Document;
  const named = withHandlesOfCategories(changed, nodeId);
  const followed = followBranches(document, named, nodeId);
  const node = nodeOf(followed, nodeId);
  if (node.label !== "Agent" || change.path[0] !== "tools") return followed;
  const toolNode = edgesOf(followed).find((edge) => edge.source === nodeId && edge.sourceHandle === "tool");
  const hasTools = listOf(node.form.tools).length + listOf(node.form.mcp).length > 0;
  if (hasTools) return withToolNode(followed, nodeId, random);
  return toolNode ? deleteNodes(followed, [toolNode.target]) : followed;
}

export function renameNode(document: Document, nodeId: string, name: string): Document {
  return changeNode(document, nodeId, (raw) => setIn(raw, ["data", "name"], name) as JsonObject);
}

/** Move nodes by some pixels; what lies in a container moves with it. */
export function moveNodes(document: Document, ids: readonly string[], dx: number, dy: number): Document {
  const moved = new Set(ids);
  return ids.reduce((now, id) => {
    const node = nodesOf(now).get(id);
    if (!node || (node.parent !== null && moved.has(node.parent))) return now;
    const { x, y } = objectOf(node.raw.position);
    return setPlace(now, indexOfNode(now, id), Number(x ?? 0) + dx, Number(y ?? 0) + dy);
  }, document);
}

export function placeNodes(document: Document, places: ReadonlyMap<string, { x: number; y: number }>): Document {
  return [...places].reduce((now, [id, { x, y }]) => {
    const index = indexOfNode(now, id);
    return index < 0 ? now : setPlace(now, index, Math.round(x), Math.round(y));
  }, document);
}

/** Make containers as large as what lies in them needs, and keep it inside. */
export function fitContainers(document: Document, ids: readonly string[]): Document {
  const parents = new Set(ids.flatMap((id) => nodesOf(document).get(id)?.parent ?? []));
  return [...parents].reduce((now, parent) => {
    const layout = drawnLayout(graphOf(now));
    const outer = layout.get(parent);
    if (!outer) return now;
    const children = [...nodesOf(now).values()].filter((node) => node.parent === parent);
    const inside = children.reduce((each, { id }) => {
      const box = layout.get(id);
      if (!box || (box.x >= MARGIN.left && box.y >= MARGIN.top)) return each;
      return setPlace(each, indexOfNode(each, id), Math.max(box.x, MARGIN.left), Math.max(box.y, MARGIN.top));
    }, now);
    const boxes = children.flatMap(({ id }) => layout.get(id) ?? []);
    const width = Math.max(outer.w, ...boxes.map((box) => Math.max(box.x, MARGIN.left) + box.w + MARGIN.right));
    const height = Math.max(outer.h, ...boxes.map((box) => Math.max(box.y, MARGIN.top) + box.h + MARGIN.bottom));
    return width === outer.w && height === outer.h ? inside : fitContainers(resizeNode(inside, parent, width, height), [parent]);
  }, document);
}

const MARGIN = { left: 10, top: 40, right: 20, bottom: 20 };

export function resizeNode(document: Document, id: string, width: number, height: number): Document {
  return changeNode(document, id, (raw) => withMember(withMember(raw, "width", Math.round(width)), "height", Math.round(height)));
}

// -- variables ---------------------------------------------------------------------------------------------------------
export interface Variable {
  name: string;
  type: string;
  value: Json;
  description: string;
}

export function variablesOf(document: Document): readonly Variable[] {
  return Object.entries(objectOf(document.variables)).map(([name, raw]) => {
    const { type, value, description } = objectOf(raw);
    return { name, type: textOf(type) || "string", value: value ?? null, description: textOf(description) };
  });
}

/** Set a variable, and its value among the globals, as RAGFlow does. Another name renames it, at its place. */
export function setVariable(document: Document, known: string | null, variable: Variable): Document {
  const { name, type, value, description } = variable;
  const variables = objectOf(document.variables);
  if (name !== known && name in variables) throw new Refusal(`There is a variable ${name} already.`);
  if (!/^[A-Za-z0-9_]+$/.test(name)) throw new Refusal("A name has letters, digits and underscores.");
  const entry = { ...objectOf(variables[known ?? name]), name, type, value, description };
  const changed = known === null || known === name ? withMember(variables, name, entry) : renamedMember(variables, known, name, entry);
  return withGlobal(setIn(document, ["variables"], changed) as Document, known, name, value);
}

export function removeVariable(document: Document, name: string): Document {
  return withGlobal(setIn(document, ["variables"], withoutMember(objectOf(document.variables), name)) as Document, name, null, null);
}

function renamedMember(object: JsonObject, from: string, to: string, value: Json): JsonObject {
  return Object.fromEntries(Object.entries(object).map(([key, member]) => (key === from ? [to, value] : [key, member])));
}

function withGlobal(document: Document, known: string | null, name: string | null, value: Json): Document {
  const globals = objectOf(document.globals);
  const cleared = known === null || known === name ? globals : withoutMember(globals, `env.${known}`);
  return setIn(document, ["globals"], name === null ? cleared : withMember(cleared, `env.${name}`, value)) as Document;
}
