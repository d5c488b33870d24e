/** The document of a canvas as RAGFlow writes it: reading its drawing, and drawing one that has none. */
import type { Graph, GraphEdge, GraphNode } from "../../store/graph";
import { isContainer, sizeOf, type Layout } from "../../graph/layout";
import { isList, isObject, listOf, objectOf, setIn, textOf, withMember, withoutMember, type Json, type JsonObject } from "./json";

/** `components`, `graph`, `variables`, … and keys that we do not know. */
export type Document = JsonObject;

export interface DrawnNode {
  id: string;
  /** Its component; `Tool` and `Note` are drawn only. */
  label: string;
  name: string;
  form: JsonObject;
  parent: string | null;
  raw: JsonObject;
}

export interface DrawnEdge {
  id: string;
  source: string;
  target: string;
  sourceHandle: string;
  targetHandle: string;
}

export const BEGIN = "begin";
export const ELSE_BRANCH = "end_cpn_ids";
export const STARTS: Readonly<Record<string, { container: string; type: string }>> = {
  IterationItem: { container: "Iteration", type: "iterationStartNode" },
  LoopItem: { container: "Loop", type: "loopStartNode" },
};

const NODE_TYPES: Readonly<Record<string, string>> = {
  Agent: "agentNode", Begin: "beginNode", Categorize: "categorizeNode", DataOperations: "dataOperationsNode", ExitLoop: "exitLoopNode",
  Iteration: "iterationNode", IterationItem: "iterationStartNode", ListOperations: "listOperationsNode", Loop: "loopNode", LoopItem: "loopStartNode",
  Message: "messageNode", Note: "noteNode", Retrieval: "retrievalNode", Switch: "switchNode", Tool: "toolNode",
  VariableAggregator: "variableAggregatorNode", VariableAssigner: "variableAssignerNode",
};

const BRANCH_HEIGHT = 20;
const FLAGS: Readonly<Record<string, string>> = {
  temperature: "temperatureEnabled", top_p: "topPEnabled", presence_penalty: "presencePenaltyEnabled",
  frequency_penalty: "frequencyPenaltyEnabled", max_tokens: "maxTokensEnabled",
};

export function nodeTypeOf(label: string): string {
  return NODE_TYPES[label] ?? "ragNode";
}

// -- reading -----------------------------------------------------------------------------------------------------------
export function rawNodes(document: Document): readonly Json[] {
  return listOf(objectOf(document.graph).nodes);
}

export function rawEdges(document: Document): readonly Json[] {
  return listOf(objectOf(document.graph).edges);
}

const nodesByList = new WeakMap<object, ReadonlyMap<string, DrawnNode>>();

/** Return the drawn nodes by id, in the order of the drawing. */
export function nodesOf(document: Document): ReadonlyMap<string, DrawnNode> {
  const list = rawNodes(document);
  const known = nodesByList.get(list);
  if (known) return known;
  const nodes = new Map<string, DrawnNode>();
  for (const raw of list) {
    if (!isObject(raw) || typeof raw.id !== "string") continue;
    const data = objectOf(raw.data);
    const label = textOf(data.label);
    nodes.set(raw.id, { id: raw.id, label, name: textOf(data.name) || raw.id, form: objectOf(data.form), parent: textOf(raw.parentId) || null, raw });
  }
  nodesByList.set(list, nodes);
  return nodes;
}

const edgesByList = new WeakMap<object, readonly DrawnEdge[]>();

export function edgesOf(document: Document): readonly DrawnEdge[] {
  const list = rawEdges(document);
  const known = edgesByList.get(list);
  if (known) return known;
  const edges = list.flatMap((raw, index): DrawnEdge[] => {
    if (!isObject(raw)) return [];
    const [source, target] = [textOf(raw.source), textOf(raw.target)];
    if (!source || !target) return [];
    const [sourceHandle, targetHandle] = [textOf(raw.sourceHandle) || "start", textOf(raw.targetHandle) || "end"];
    return [{ id: textOf(raw.id) || `edge ${index}`, source, target, sourceHandle, targetHandle }];
  });
  edgesByList.set(list, edges);
  return edges;
}

/** Return the branches of a node in the order of its form: the handle of each, and its name. */
export function branchesOf(label: string, form: JsonObject): readonly { key: string; label: string }[] {
  if (label === "Switch") {
    const cases = listOf(form.conditions).map((_, index) => ({ key: `Case ${index + 1}`, label: `Case ${index + 1}` }));
    return [...cases, { key: ELSE_BRANCH, label: "Else" }];
  }
  if (label !== "Categorize") return [];
  if (isList(form.items)) {
    return form.items.filter(isObject).map((item) => ({ key: textOf(item.uuid) || textOf(item.name), label: textOf(item.name) }));
  }
  return Object.keys(objectOf(form.category_description)).map((name) => ({ key: name, label: name }));
}

const graphNodes = new WeakMap<JsonObject, GraphNode>();

/** Return a drawn node as views have it; the same object as long as nothing of it has changed. */
function graphNode(node: DrawnNode): GraphNode {
  const known = graphNodes.get(node.raw);
  if (known) return known;
  const position = objectOf(node.raw.position);
  const measured = objectOf(node.raw.measured);
  const branches = branchesOf(node.label, node.form);
  const made: GraphNode = {
    id: node.id,
    kind: textOf(node.raw.type) || nodeTypeOf(node.label),
    component: node.label,
    name: node.name,
    x: numberOf(position.x),
    y: numberOf(position.y),
    w: numberOf(node.raw.width) ?? numberOf(measured.width),
    h: numberOf(node.raw.height) ?? numberOf(measured.height),
    parent: node.parent,
    branches,
    isStart: node.id === BEGIN || node.label in STARTS,
  };
  // RAGFlow measures nodes when it shows them; until then a node with more branches than before is too small
  const least = branches.length ? Math.max(sizeOf({ ...made, h: null }).h, BRANCH_HEIGHT * (branches.length + 1)) : 0;
  const result = { ...made, h: branches.length ? Math.max(made.h ?? 0, least) : made.h };
  graphNodes.set(node.raw, result);
  return result;
}

/** Return the drawing as the views of graphs have it. */
export function graphOf(document: Document): Graph {
  const drawn = nodesOf(document);
  const nodes = [...drawn.values()].map((node): GraphNode => {
    const made = graphNode(node);
    return made.parent === null || drawn.has(made.parent) ? made : { ...made, parent: null };
  });
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const edges = edgesOf(document).map((edge): GraphEdge => {
    const branches = byId.get(edge.source)?.branches ?? [];
    const branch = branches.some((each) => each.key === edge.sourceHandle) ? edge.sourceHandle : null;
    return { id: edge.id, from: edge.source, to: edge.target, branch, kind: edgeKind(edge, drawn.get(edge.target)) };
  });
  return { drawn: nodes.length > 0 && nodes.every((node) => node.x !== null && node.y !== null), nodes, edges };
}

export function edgeKind(edge: DrawnEdge, target: DrawnNode | undefined): string {
  if (edge.sourceHandle === "agentException") return "exception";
  if (edge.sourceHandle === "tool" || target?.label === "Tool") return "tool";
  return edge.targetHandle === "agentTop" || edge.sourceHandle === "agentBottom" ? "agent" : "flow";
}

function numberOf(value: Json | undefined): number | null {
  return typeof value === "number" ? value : null;
}

// -- drawing what is not drawn -----------------------------------------------------------------------------------------
/** Whether every node of the document has a place on its drawing, and what an editor shows of it. */
export function isDrawn(document: Document): boolean {
  const drawn = nodesOf(document);
  const places = new Set([...drawn.values()].map((node) => `${node.parent} ${JSON.stringify(node.raw.position)}`));
  const haveAll = [...drawn.values()].every(({ raw, label }) => {
    const position = objectOf(raw.position);
    return label && isObject(objectOf(raw.data).form) && typeof position.x === "number" && typeof position.y === "number";
  });
  return haveAll && places.size === drawn.size && Object.keys(objectOf(document.components)).every((id) => drawn.has(id)) && isList(objectOf(document.graph).edges);
}

/** Return the document with a node for every entry and the edges between them, without places. */
export function withNodes(document: Document): Document {
  const entries = Object.entries(objectOf(document.components));
  const drawn = nodesOf(document);
  const completed = rawNodes(document).map((raw) => completeNode(raw, objectOf(objectOf(document.components)[textOf(objectOf(raw).id)])));
  const added = entries.filter(([id]) => !drawn.has(id)).map(([id, entry]) => completeNode({ id }, objectOf(entry)));
  const hasEdges = drawn.size > 0 && isList(objectOf(document.graph).edges);
  const edges = hasEdges ? rawEdges(document) : entries.flatMap(([id, entry]) => edgesOfEntry(id, objectOf(entry)));
  const nodes = completed.every((node, index) => node === rawNodes(document)[index]) && !added.length ? rawNodes(document) : [...completed, ...added];
  return setIn(setIn(document, ["graph", "nodes"], nodes), ["graph", "edges"], edges) as Document;
}

/** Return the document as two are compared: entries of drawn nodes follow from the drawing when it is saved, so they are left out. */
export function comparable(document: Document): Document {
  if (!isObject(document.components)) return document;
  const drawn = nodesOf(document);
  const undrawn = Object.keys(document.components).reduce<JsonObject>((entries, id) => (drawn.has(id) ? withoutMember(entries, id) : entries), document.components);
  return withMember(document, "components", undrawn);
}

/** Return the document with the places of a layout for its nodes. */
export function withPlaces(document: Document, graph: Graph, layout: Layout): Document {
  return graph.nodes.reduce((now, node) => {
    const box = layout.get(node.id);
    const index = rawNodes(now).findIndex((raw) => objectOf(raw).id === node.id);
    if (!box || index < 0) return now;
    const placed = setPlace(now, index, box.x, box.y);
    if (!isContainer(node)) return placed;
    return setIn(setIn(placed, ["graph", "nodes", index, "width"], box.w), ["graph", "nodes", index, "height"], box.h) as Document;
  }, document);
}

export function setPlace(document: Document, index: number, x: number, y: number): Document {
  const path = ["graph", "nodes", index, "position"];
  return setIn(setIn(document, [...path, "x"], x), [...path, "y"], y) as Document;
}

function completeNode(raw: Json, entry: JsonObject): Json {
  if (!isObject(raw)) return raw;
  const { name: component, params } = componentOf(entry);
  const data = objectOf(raw.data);
  const label = textOf(data.label) || component;
  if (textOf(data.label) && isObject(data.form)) return raw;
  const form = isObject(data.form) ? data.form : formOfParams(label, params);
  const parent = textOf(raw.parentId) || textOf(entry.parent_id);
  return {
    ...raw,
    type: textOf(raw.type) || nodeTypeOf(label),
    position: objectOf(raw.position),
    ...(parent ? { parentId: parent, extent: "parent" } : {}),
    data: { ...data, label, name: textOf(data.name) || textOf(raw.id), form },
  };
}

/** Return component and params of an entry, nested or flat. */
export function componentOf(entry: JsonObject): { name: string; params: JsonObject } {
  const obj = isObject(entry.obj) ? entry.obj : entry;
  return { name: textOf(obj.component_name) || textOf(obj.name), params: objectOf(obj.params) };
}

/** Return the form of a node whose params are those of an entry: what RAGFlow derives from a form, backwards. */
function formOfParams(label: string, params: JsonObject): JsonObject {
  if (label === "DataOperations") {
    const rows = (key: string, member: string): JsonObject =>
      isList(params[key]) ? { [key]: params[key].map((item) => (isObject(item) ? item : { [member]: item })) } : {};
    return { ...params, ...rows("query", "input"), ...rows("select_keys", "name"), ...rows("remove_keys", "name") };
  }
  if (label !== "Categorize" || !isObject(params.category_description)) return params;
  const { category_description: categories, ...others } = params;
  const items = Object.entries(objectOf(categories)).map(([name, written]) => {
    const { examples, ...row } = withoutMember(objectOf(written), "to");
    return { ...row, name, examples: listOf(examples).map((value) => ({ value })), uuid: handleOfCategory(name) };
  });
  const flags = Object.fromEntries(Object.entries(FLAGS).flatMap(([setting, flag]) => (setting in others ? [[flag, true]] : [])));
  return { ...others, ...flags, items };
}

/** A category without a handle gets one that follows from its name, so that drawing a document twice gives the same. */
function handleOfCategory(name: string): string {
  return `category ${name}`;
}

function edgesOfEntry(id: string, entry: JsonObject): JsonObject[] {
  const { name, params } = componentOf(entry);
  const downstream = listOf(entry.downstream ?? objectOf(entry.obj).downstream).filter((target) => typeof target === "string");
  const targets = (value: Json | undefined): string[] => (typeof value === "string" ? [value] : listOf(value).filter((each) => typeof each === "string")).filter(Boolean);
  const branches: [string, string[]][] =
    name === "Switch"
      ? [...listOf(params.conditions).map((row, index): [string, string[]] => [`Case ${index + 1}`, targets(objectOf(row).to)]), [ELSE_BRANCH, targets(params.end_cpn_ids)]]
      : name === "Categorize"
        ? Object.entries(objectOf(params.category_description)).map(([category, row]) => [handleOfCategory(category), targets(objectOf(row).to)])
        : [];
  const branched = new Set(branches.flatMap(([, to]) => to));
  const plain: [string, string[]] = ["start", [...new Set(downstream)].filter((target) => !branched.has(target))];
  const exceptions: [string, string[]] = ["agentException", name === "Agent" ? targets(params.exception_goto) : []];
  return [...branches, plain, exceptions].flatMap(([handle, to]) => [...new Set(to)].map((target) => newEdge(id, handle, target, "end")));
}

export function newEdge(source: string, sourceHandle: string, target: string, targetHandle: string): JsonObject {
  return { id: `xy-edge__${source}${sourceHandle}-${target}${targetHandle}`, source, sourceHandle, target, targetHandle };
}
