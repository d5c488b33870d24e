/** What differs between two documents of an agent: nodes and their parameters, edges, variables, and the drawing. */
import type { GraphEdge } from "../store/graph";
import { edgesOf, fieldsOf, listOf, nodesOf, unwrapped, type CanvasDocument, type DocumentNode, type Fields, type Json } from "./document";

export type ChangeKind = "added" | "removed" | "changed";

/** One value that differs. `before` of an added value and `after` of a removed one are undefined. */
export interface ValueChange {
  /** Its place, as findings name it: `prompts[0].content`. */
  path: string;
  kind: ChangeKind;
  before: Json;
  after: Json;
}

export interface NodeDifference {
  id: string;
  /** The name in B; of a removed node, in A. */
  name: string;
  component: string;
  kind: ChangeKind;
  changes: readonly ValueChange[];
}

export interface EdgeDifference {
  edge: GraphEdge;
  kind: "added" | "removed";
  fromName: string;
  toName: string;
  /** The branch by its label, if the edge leaves a branch. */
  branch: string | null;
}

export interface DocumentDifference {
  nodes: readonly NodeDifference[];
  edges: readonly EdgeDifference[];
  variables: readonly ValueChange[];
  /** Globals and everything else that is neither drawing, node nor variable. */
  others: readonly ValueChange[];
  /** Nodes that both have, and that are drawn elsewhere, in another size or with another note. */
  moved: readonly { id: string; name: string }[];
  /** Whether anything differs in what runs. */
  runsDiffer: boolean;
  isSame: boolean;
}

const MAX_DEPTH = 40;
/** What a conversation leaves in a document: none of it is what the author wrote. */
const STATE = new Set(["history", "path", "retrieval", "memory", "messages", "reference", "answer", "task_id"]);
/** Globals that each run sets. */
const IS_RUNTIME = /^sys\./;

/** Return what differs between two documents, each bare or in a `dsl` key. */
export function differenceOf(documentA: CanvasDocument, documentB: CanvasDocument): DocumentDifference {
  const [a, b] = [unwrapped(documentA), unwrapped(documentB)];
  const [nodesA, nodesB] = [nodesOf(a), nodesOf(b)];
  const notes = new Set<string>();
  const nodes: NodeDifference[] = [];
  const moved: { id: string; name: string }[] = [];
  for (const id of new Set([...nodesB.keys(), ...nodesA.keys()])) {
    const [before, after] = [nodesA.get(id), nodesB.get(id)];
    const node = after ?? before;
    if (!node) continue;
    if (node.component === "Note") notes.add(id);
    if (before && after) {
      const changes = nodeChanges(before, after, nodesA, nodesB);
      if (changes.length) nodes.push({ id, name: after.name, component: after.component, kind: "changed", changes });
      if (!isEqual(before.place, after.place) || (!changes.length && !isEqual(before.form, after.form))) moved.push({ id, name: after.name });
    } else {
      nodes.push({ id, name: node.name, component: node.component, kind: after ? "added" : "removed", changes: onlyParams(node, after ? "added" : "removed") });
    }
  }
  const edges = edgeDifferences(a, b, nodesA, nodesB);
  const variables = changesOf(fieldsOf(a.variables), fieldsOf(b.variables), "");
  const others = otherChanges(a, b);
  const runsDiffer = edges.some(({ edge }) => !notes.has(edge.from) && !notes.has(edge.to)) || variables.length > 0 || others.length > 0 || nodes.some(({ id }) => !notes.has(id));
  return { nodes, edges, variables, others, moved, runsDiffer, isSame: isEqual(a, b) };
}

// -- nodes -------------------------------------------------------------------------------------------------------------
function nodeChanges(before: DocumentNode, after: DocumentNode, nodesA: ReadonlyMap<string, DocumentNode>, nodesB: ReadonlyMap<string, DocumentNode>): ValueChange[] {
  const heads = (["name", "component", "parent"] as const).flatMap((field): ValueChange[] =>
    before[field] === after[field] ? [] : [{ path: field, kind: "changed", before: before[field], after: after[field] }],
  );
  const [paramsA, paramsB] = [withoutSubAgents(before.params, nodesA), withoutSubAgents(after.params, nodesB)];
  return [...heads, ...changesOf(written(paramsA), written(paramsB), ""), ...categoryOrder(before, after)];
}

/** The last category is chosen where a model names none, so their order counts. */
function categoryOrder(before: DocumentNode, after: DocumentNode): ValueChange[] {
  const [a, b] = [Object.keys(fieldsOf(before.params.category_description)), Object.keys(fieldsOf(after.params.category_description))];
  const isReordered = a.length === b.length && a.every((name) => b.includes(name)) && !isEqual(a, b);
  return isReordered ? [{ path: "category_description", kind: "changed", before: a, after: b }] : [];
}

/** Sub-agents are nodes of the drawing and compared there: without it, as a part of their Agent. */
function withoutSubAgents(params: Fields, nodes: ReadonlyMap<string, DocumentNode>): Fields {
  if (!Array.isArray(params.tools)) return params;
  return { ...params, tools: listOf(params.tools).filter((tool) => !nodes.get(String(fieldsOf(tool).id))?.isDrawn) };
}

/** Return parameters without the values that a run has left in `inputs` and `outputs`: null, "" and a value are one. */
function written(params: Fields): Fields {
  const outputs = fieldsOf(params.outputs);
  if (!Object.keys(outputs).length) return params;
  return {
    ...params,
    outputs: Object.fromEntries(
      Object.entries(outputs).map(([name, output]) => [
        name,
        typeof output === "object" && output !== null && !Array.isArray(output) && "type" in output
          ? Object.fromEntries(Object.entries(output).filter(([key]) => key !== "value"))
          : output,
      ]),
    ),
  };
}

function onlyParams(node: DocumentNode, kind: "added" | "removed"): ValueChange[] {
  return Object.entries(written(node.params))
    .filter(([, value]) => !isEmpty(value))
    .map(([path, value]) => ({ path, kind, before: kind === "removed" ? value : undefined, after: kind === "added" ? value : undefined }));
}

function isEmpty(value: Json): boolean {
  return value === null || value === "" || value === undefined || (typeof value === "object" && Object.keys(value).length === 0);
}

// -- edges -------------------------------------------------------------------------------------------------------------
function edgeDifferences(a: CanvasDocument, b: CanvasDocument, nodesA: ReadonlyMap<string, DocumentNode>, nodesB: ReadonlyMap<string, DocumentNode>): EdgeDifference[] {
  const [edgesA, edgesB] = [byId(edgesOf(a, nodesA)), byId(edgesOf(b, nodesB))];
  const shown = (edge: GraphEdge, kind: "added" | "removed"): EdgeDifference => {
    const [own, other] = kind === "added" ? [nodesB, nodesA] : [nodesA, nodesB];
    const name = (id: string): string => (own.get(id) ?? other.get(id))?.name ?? id;
    return { edge, kind, fromName: name(edge.from), toName: name(edge.to), branch: branchLabel(own.get(edge.from), edge.branch) };
  };
  return [
    ...[...edgesB.values()].filter((edge) => !edgesA.has(edge.id)).map((edge) => shown(edge, "added")),
    ...[...edgesA.values()].filter((edge) => !edgesB.has(edge.id)).map((edge) => shown(edge, "removed")),
  ];
}

function byId(edges: readonly GraphEdge[]): Map<string, GraphEdge> {
  return new Map(edges.map((edge) => [edge.id, edge]));
}

function branchLabel(node: DocumentNode | undefined, branch: string | null): string | null {
  if (branch === null || !node) return branch;
  const row = listOf(node.form.items).map(fieldsOf).find((each) => each.uuid === branch);
  return branch === "end_cpn_ids" ? "Else" : typeof row?.name === "string" ? row.name : branch;
}

// -- everything else ---------------------------------------------------------------------------------------------------
function otherChanges(a: CanvasDocument, b: CanvasDocument): ValueChange[] {
  const rest = (document: CanvasDocument): Fields =>
    Object.fromEntries(Object.entries(document).filter(([key]) => !["components", "graph", "variables", "globals"].includes(key) && !STATE.has(key)));
  const globals = (document: CanvasDocument): Fields => {
    const declared = fieldsOf(document.variables); // a conversation begins with these values, whatever globals has
    return Object.fromEntries(Object.entries(fieldsOf(document.globals)).filter(([key]) => !IS_RUNTIME.test(key) && !(key.replace(/^env\./, "") in declared)));
  };
  return [...changesOf(globals(a), globals(b), "globals"), ...changesOf(rest(a), rest(b), "")];
}

// -- values ------------------------------------------------------------------------------------------------------------
/** Return where two objects differ, down to single values; a list whose length differs is one change. */
export function changesOf(before: Fields, after: Fields, at: string, depth = 0): ValueChange[] {
  return [...new Set([...Object.keys(after), ...Object.keys(before)])].flatMap((key) => {
    const path = at ? `${at}.${key}` : key;
    if (!(key in before)) return [{ path, kind: "added" as const, before: undefined, after: after[key] }];
    if (!(key in after)) return [{ path, kind: "removed" as const, before: before[key], after: undefined }];
    return valueChanges(before[key], after[key], path, depth + 1);
  });
}

function valueChanges(before: Json, after: Json, path: string, depth: number): ValueChange[] {
  if (isEqual(before, after)) return [];
  if (depth < MAX_DEPTH) {
    if (isObject(before) && isObject(after)) return changesOf(before, after, path, depth);
    if (isListOfObjects(before) && isListOfObjects(after) && before.length === after.length) {
      return before.flatMap((item, index) => valueChanges(item, after[index], `${path}[${index}]`, depth + 1));
    }
  }
  return [{ path, kind: "changed", before, after }];
}

function isObject(value: Json): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isListOfObjects(value: Json): value is readonly Fields[] {
  return Array.isArray(value) && value.length > 0 && value.every(isObject);
}

/** Return whether two values are the same JSON; the order of keys does not count. */
export function isEqual(a: Json, b: Json): boolean {
  if (a === b) return true;
  if (Array.isArray(a) || Array.isArray(b)) {
    const [x, y] = [listOf(a), listOf(b)];
    return Array.isArray(a) && Array.isArray(b) && x.length === y.length && x.every((item, index) => isEqual(item, y[index]));
  }
  if (!isObject(a) || !isObject(b)) return false;
  const [keysA, keysB] = [Object.keys(a).filter((key) => a[key] !== undefined), Object.keys(b).filter((key) => b[key] !== undefined)];
  return keysA.length === keysB.length && keysA.every((key) => key in b && isEqual(a[key], b[key]));
}
