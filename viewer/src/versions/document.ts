/** A document of a canvas as RAGFlow stores it: its nodes, edges and parameters, whatever else it contains. */
import type { Graph, GraphEdge, GraphNode } from "../store/graph";

export type Json = unknown;
export type Fields = Readonly<Record<string, Json>>;
export type CanvasDocument = Fields;

const TYPES: Readonly<Record<string, string>> = {
  Agent: "agentNode", Begin: "beginNode", Categorize: "categorizeNode", DataOperations: "dataOperationsNode", ExitLoop: "exitLoopNode",
  Iteration: "iterationNode", IterationItem: "iterationStartNode", ListOperations: "listOperationsNode", Loop: "loopNode", LoopItem: "loopStartNode",
  Message: "messageNode", Retrieval: "retrievalNode", Switch: "switchNode", VariableAggregator: "variableAggregatorNode", VariableAssigner: "variableAssignerNode",
};
const ELSE = "end_cpn_ids";

/** A node of a document: drawn, with an entry in `components`, or both. */
export interface DocumentNode {
  id: string;
  name: string;
  component: string;
  parent: string | null;
  /** What runs: the parameters of the entry; of a node without one, the form. */
  params: Fields;
  form: Fields;
  isDrawn: boolean;
  /** Position and size as they are drawn. */
  place: Fields;
}

export function fieldsOf(value: Json): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

export function listOf(value: Json): readonly Json[] {
  return Array.isArray(value) ? (value as readonly Json[]) : [];
}

function textOf(value: Json): string {
  return typeof value === "string" ? value : "";
}

/** Return the document out of `dsl`, if it lies there. */
export function unwrapped(document: CanvasDocument): CanvasDocument {
  return document.components === undefined && document.graph === undefined && document.dsl !== undefined ? fieldsOf(document.dsl) : document;
}

/** Return the nodes in the order of the drawing, then those that are not drawn. */
export function nodesOf(document: CanvasDocument): Map<string, DocumentNode> {
  const components = fieldsOf(document.components);
  const nodes = new Map<string, DocumentNode>();
  const add = (id: string, item: Fields): void => {
    const data = fieldsOf(item.data);
    const entry = fieldsOf(components[id]);
    const object = fieldsOf(entry.obj);
    const form = fieldsOf(data.form);
    nodes.set(id, {
      id,
      name: textOf(data.name) || id,
      component: textOf(object.component_name) || textOf(data.label),
      parent: textOf(entry.parent_id) || textOf(item.parentId) || null,
      params: components[id] === undefined ? form : fieldsOf(object.params),
      form,
      isDrawn: Object.keys(item).length > 0,
      place: { type: item.type, position: item.position, width: item.width, height: item.height, parentId: item.parentId },
    });
  };
  for (const item of listOf(fieldsOf(document.graph).nodes).map(fieldsOf)) if (typeof item.id === "string") add(item.id, item);
  for (const id of Object.keys(components)) if (!nodes.has(id)) add(id, {});
  return nodes;
}

/** Return the edges: those of the drawing; without one, those that a run can follow. */
export function edgesOf(document: CanvasDocument, nodes: ReadonlyMap<string, DocumentNode>): GraphEdge[] {
  const graph = fieldsOf(document.graph);
  if (Array.isArray(graph.edges) && listOf(graph.nodes).length) return drawnEdges(graph.edges as readonly Json[], nodes);
  const components = fieldsOf(document.components);
  return Object.keys(components).flatMap((from) =>
    listOf(fieldsOf(components[from]).downstream).flatMap((to) => (typeof to === "string" ? [edge(from, to, null, "flow")] : [])),
  );
}

function drawnEdges(items: readonly Json[], nodes: ReadonlyMap<string, DocumentNode>): GraphEdge[] {
  return items.map(fieldsOf).flatMap((item) => {
    const [from, to, handle, target] = [textOf(item.source), textOf(item.target), textOf(item.sourceHandle), textOf(item.targetHandle)];
    const source = nodes.get(from);
    if (!from || !to) return [];
    const isBranch = source !== undefined && branchesOf(source).some((branch) => branch.key === handle);
    return [edge(from, to, isBranch ? handle : null, kindOf(handle, target, nodes.get(to)?.component ?? ""))];
  });
}

function edge(from: string, to: string, branch: string | null, kind: string): GraphEdge {
  return { id: JSON.stringify([from, to, branch, kind]), from, to, branch, kind };
}

function kindOf(handle: string, target: string, component: string): string {
  if (handle === "agentException") return "exception";
  if (handle === "tool" || component === "Tool") return "tool";
  return target === "agentTop" || handle === "agentBottom" ? "agent" : "flow";
}

function branchesOf(node: DocumentNode): { key: string; label: string }[] {
  if (node.component === "Switch") {
    const cases = listOf(node.params.conditions).map((_, index) => ({ key: `Case ${index + 1}`, label: `Case ${index + 1}` }));
    return [...cases, { key: ELSE, label: "Else" }];
  }
  if (node.component !== "Categorize") return [];
  if (!Array.isArray(node.form.items)) return Object.keys(fieldsOf(node.params.category_description)).map((name) => ({ key: name, label: name }));
  return listOf(node.form.items).map(fieldsOf).map((row) => ({ key: textOf(row.uuid) || textOf(row.name), label: textOf(row.name) }));
}

/** Return a document's graph in the shape of the API, for the drawing. */
export function graphOf(document: CanvasDocument): Graph {
  const nodes = nodesOf(document);
  const drawn = [...nodes.values()].map(graphNode);
  const places = new Set(drawn.map((node) => JSON.stringify([node.parent, node.x, node.y])));
  const isDrawn = drawn.length > 0 && places.size === drawn.length && drawn.every((node) => node.x !== null && node.y !== null);
  const edges = new Map(edgesOf(document, nodes).map((each) => [each.id, each]));
  return { drawn: isDrawn, nodes: drawn, edges: [...edges.values()] };
}

function graphNode(node: DocumentNode): GraphNode {
  const position = fieldsOf(node.place.position);
  const numberOf = (value: Json): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
  return {
    id: node.id,
    kind: textOf(node.place.type) || TYPES[node.component] || "ragNode",
    component: node.component,
    name: node.component === "Note" ? textOf(node.form.text) || node.name : node.name,
    x: numberOf(position.x),
    y: numberOf(position.y),
    w: numberOf(node.place.width),
    h: numberOf(node.place.height),
    parent: node.parent,
    branches: branchesOf(node),
    isStart: node.id === "begin" || node.component === "IterationItem" || node.component === "LoopItem",
  };
}
