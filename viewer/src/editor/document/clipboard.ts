/** Copied nodes as text, so that they can be pasted into another drawing, and pasting them. */
import { addNodes, Refusal, withDependents, withGraphList } from "./commands";
import { BEGIN, newEdge, nodesOf, rawEdges, rawNodes, STARTS, type Document } from "./document";
import { insertItem, isList, isObject, listOf, objectOf, readJson, setIn, textOf, withMember, withoutMember, writeJson, type Json, type JsonObject } from "./json";
import { newName, newNodeId, type Random } from "./names";

const MARK = "easel/nodes";

/** Return nodes with what belongs to them, and the edges between them, as text. Begin and starts alone are not copied. */
export function copyNodes(document: Document, ids: readonly string[]): string {
  const wanted = ids.filter((id) => id !== BEGIN && !((nodesOf(document).get(id)?.label ?? "") in STARTS && !ids.includes(nodesOf(document).get(id)?.parent ?? "")));
  if (!wanted.length) throw new Refusal("Select nodes to copy them. An agent has one Begin.");
  const copied = withDependents(document, wanted);
  const nodes = rawNodes(document).filter((raw) => copied.has(textOf(objectOf(raw).id)));
  const edges = rawEdges(document).filter((raw) => copied.has(textOf(objectOf(raw).source)) && copied.has(textOf(objectOf(raw).target)));
  return writeJson({ [MARK]: 1, nodes, edges });
}

/** Return what a text has copied; null if it is something else. */
export function parseCopied(text: string): { nodes: readonly Json[]; edges: readonly Json[] } | null {
  if (!text.includes(MARK)) return null;
  try {
    const value = readJson(text);
    return isObject(value) && value[MARK] === 1 ? { nodes: listOf(value.nodes), edges: listOf(value.edges) } : null;
  } catch {
    return null;
  }
}

/** Add copied nodes with new ids beside where they were; references among them lead to the copies. */
export function pasteNodes(document: Document, text: string, shift = 40, random?: Random): { document: Document; ids: string[] } {
  const copied = parseCopied(text);
  if (!copied) throw new Refusal("The clipboard has no nodes.");
  const nodes = copied.nodes.filter((raw): raw is JsonObject => isObject(raw) && textOf(raw.id) !== "" && textOf(raw.id) !== BEGIN);
  const ids = new Map<string, string>();
  let reserved = document;
  for (const raw of nodes) {
    const id = newNodeId(reserved, textOf(objectOf(raw.data).label) || "Node", random);
    ids.set(textOf(raw.id), id);
    reserved = addNodes(reserved, [{ id }]);
  }
  let now = document;
  for (const raw of nodes) now = addNodes(now, [copyOf(now, raw, ids, shift)]);
  for (const raw of copied.edges) {
    const edge = objectOf(raw);
    const [source, target] = [ids.get(textOf(edge.source)), ids.get(textOf(edge.target))];
    if (source === undefined || target === undefined) continue;
    const made = newEdge(source, textOf(edge.sourceHandle) || "start", target, textOf(edge.targetHandle) || "end");
    now = withGraphList(now, "edges", insertItem(rawEdges(now), rawEdges(now).length, { ...edge, ...made }));
  }
  const outer = nodes.filter((raw) => !ids.has(textOf(raw.parentId)));
  return { document: now, ids: outer.flatMap((raw) => ids.get(textOf(raw.id)) ?? []) };
}

function copyOf(document: Document, raw: JsonObject, ids: ReadonlyMap<string, string>, shift: number): JsonObject {
  const id = ids.get(textOf(raw.id)) ?? "";
  const data = objectOf(raw.data);
  const parent = ids.get(textOf(raw.parentId));
  const outer = parent === undefined && nodesOf(document).has(textOf(raw.parentId)) ? textOf(raw.parentId) : parent;
  const form = renamed(objectOf(data.form), ids);
  const named = { ...data, name: textOf(data.label) in STARTS ? data.name ?? "" : newName(document, textOf(data.name) || id), form: knownTargets(data, form, ids) };
  const made = withoutMember(withMember(withMember(raw, "id", id), "data", named), "selected");
  const placed = outer === undefined ? withoutMember(withoutMember(made, "parentId"), "extent") : withMember(made, "parentId", outer);
  if (parent !== undefined) return placed;
  const { x, y } = objectOf(raw.position);
  return setIn(setIn(placed, ["position", "x"], Number(x ?? 0) + shift), ["position", "y"], Number(y ?? 0) + shift) as JsonObject;
}

/** A copied Switch leads only to copies: its edges to other nodes are not copied. */
function knownTargets(data: JsonObject, form: Json, ids: ReadonlyMap<string, string>): Json {
  if (data.label !== "Switch") return form;
  const copies = new Set(ids.values());
  const only = (to: Json | undefined): Json => (typeof to === "string" ? [to] : listOf(to)).filter((each) => copies.has(textOf(each)));
  const rows = listOf(objectOf(form).conditions).map((row) => (isObject(row) && "to" in row ? withMember(row, "to", only(row.to)) : row));
  return { ...objectOf(form), conditions: rows, end_cpn_ids: only(objectOf(form).end_cpn_ids) };
}

/** Return a value in which references to copied nodes are references to their copies. */
function renamed(value: Json, ids: ReadonlyMap<string, string>): Json {
  if (isList(value)) return value.map((item) => renamed(item, ids));
  if (isObject(value)) return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, renamed(member, ids)]));
  if (typeof value !== "string") return value;
  return ids.get(value) ?? value.replace(/[A-Za-z0-9_]+:[A-Za-z0-9_]+(?=@)/g, (id) => ids.get(id) ?? id);
}
