/**
 * Branches of Switch and Categorize, and the edges from them. A Switch has its targets twice: in its form (`to`), which a
 * run reads, and as edges from `Case n`. A Categorize has edges from the `uuid` of each category.
 */
import { edgesOf, ELSE_BRANCH, newEdge, nodesOf, rawEdges, rawNodes, type Document, type DrawnNode } from "./document";
import { insertItem, isEqual, isList, isObject, listOf, objectOf, removeItem, setIn, textOf, withItem, withMember, type Json, type JsonObject, type Path } from "./json";

/** Note the targets of a Switch's handle in its form. Other nodes stay as they are. */
export function followEdges(document: Document, nodeId: string, handle: string): Document {
  const node = nodesOf(document).get(nodeId);
  const path = node?.label === "Switch" ? pathOfTargets(node, handle) : null;
  if (!node || path === null) return document;
  const targets = targetsOf(document, nodeId, handle);
  const index = rawNodes(document).findIndex((raw) => objectOf(raw).id === nodeId);
  return setIn(document, ["graph", "nodes", index, "data", "form", ...path], targets) as Document;
}

function pathOfTargets(node: DrawnNode, handle: string): Path | null {
  if (handle === ELSE_BRANCH) return [ELSE_BRANCH];
  const index = Number(/^Case (\d+)$/.exec(handle)?.[1]) - 1;
  return isObject(listOf(node.form.conditions)[index]) ? ["conditions", index, "to"] : null;
}

function targetsOf(document: Document, nodeId: string, handle: string): string[] {
  return edgesOf(document).filter((edge) => edge.source === nodeId && edge.sourceHandle === handle).map((edge) => edge.target);
}

/** Give each category a handle. */
export function withHandlesOfCategories(document: Document, nodeId: string): Document {
  const node = nodesOf(document).get(nodeId);
  if (node?.label !== "Categorize" || !isList(node.form.items)) return document;
  const known = new Set<string>();
  const items = node.form.items.reduce<readonly Json[]>((list, item, index) => {
    const handle = textOf(objectOf(item).uuid);
    const isGood = handle !== "" && !known.has(handle);
    const given = isGood ? handle : newHandle();
    known.add(given);
    return isGood || !isObject(item) ? list : withItem(list, index, withMember(item, "uuid", given));
  }, node.form.items);
  if (items === node.form.items) return document;
  const index = rawNodes(document).findIndex((raw) => objectOf(raw).id === nodeId);
  return setIn(document, ["graph", "nodes", index, "data", "form", "items"], items) as Document;
}

/** Return a UUID, also where `crypto.randomUUID` is missing: on pages without TLS. */
function newHandle(): string {
  const hex = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12})$/, "$1-$2-4$3-8$4-$5");
}

/** Return the changed document with the edges of a node moved or removed as its branches were, and as its `to` lists say. */
export function followBranches(before: Document, after: Document, nodeId: string): Document {
  const [was, now] = [nodesOf(before).get(nodeId), nodesOf(after).get(nodeId)];
  if (!was || !now) return after;
  if (now.label === "Categorize") {
    const handles = new Set(listOf(now.form.items).map((item) => textOf(objectOf(item).uuid) || textOf(objectOf(item).name)));
    return isList(now.form.items) ? keepEdges(after, nodeId, (handle) => (handles.has(handle) ? handle : null)) : after;
  }
  return now.label === "Switch" ? followSwitch(after, was, now) : after;
}

function followSwitch(after: Document, was: DrawnNode, now: DrawnNode): Document {
  const [old, rows] = [listOf(was.form.conditions), listOf(now.form.conditions)];
  const moved = placesOfRows(old, rows);
  const renamed = keepEdges(after, now.id, (handle) => {
    const index = Number(/^Case (\d+)$/.exec(handle)?.[1]) - 1;
    if (Number.isNaN(index)) return handle;
    const place = moved.get(index);
    return place === undefined ? (index < old.length ? null : handle) : `Case ${place + 1}`;
  });
  const oldOf = new Map([...moved].map(([from, to]) => [to, old[from]]));
  const lists: [string, Json | undefined, Json | undefined][] = [
    ...rows.map((row, index): [string, Json | undefined, Json | undefined] => [`Case ${index + 1}`, objectOf(oldOf.get(index)).to, objectOf(row).to]),
    [ELSE_BRANCH, was.form[ELSE_BRANCH], now.form[ELSE_BRANCH]],
  ];
  return lists.reduce((document, [handle, one, other]) => (isEqual(one, other) ? document : followTargets(document, now.id, handle, other)), renamed);
}

/** Return where the rows of a list are now: the same objects first, then equal ones, then those that were edited in place. */
function placesOfRows(old: readonly Json[], rows: readonly Json[]): ReadonlyMap<number, number> {
  const places = new Map<number, number>();
  const isFree = (place: number): boolean => ![...places.values()].includes(place);
  const match = (isSame: (one: Json, other: Json, index: number, place: number) => boolean): void =>
    old.forEach((row, index) => {
      if (places.has(index)) return;
      const place = rows.findIndex((other, at) => isFree(at) && isSame(row, other, index, at));
      if (place >= 0) places.set(index, place);
    });
  match((one, other, index, place) => one === other && index === place);
  match((one, other) => one === other);
  match((one, other) => isEqual(one, other));
  if (old.length === rows.length) match((_, __, index, place) => index === place);
  return places;
}

/** Rename the handles of a node's edges; those without a new name are removed. */
function keepEdges(document: Document, nodeId: string, rename: (handle: string) => string | null): Document {
  const list = rawEdges(document);
  let kept = list;
  for (let index = list.length - 1; index >= 0; index--) {
    const raw = list[index];
    if (!isObject(raw) || raw.source !== nodeId) continue;
    const handle = textOf(raw.sourceHandle) || "start";
    const renamed = rename(handle);
    if (renamed === null) kept = removeItem(kept, index);
    else if (renamed !== handle) kept = withItem(kept, index, withMember(withMember(raw, "sourceHandle", renamed), "id", `${idOfEdge(raw, renamed)}`));
  }
  return kept === list ? document : (setIn(document, ["graph", "edges"], kept) as Document);
}

function idOfEdge(raw: JsonObject, handle: string): string {
  return textOf(newEdge(textOf(raw.source), handle, textOf(raw.target), textOf(raw.targetHandle) || "end").id);
}

/** Make the edges from a handle lead to these targets. */
function followTargets(document: Document, nodeId: string, handle: string, to: Json | undefined): Document {
  const nodes = nodesOf(document);
  const written = typeof to === "string" ? [to] : listOf(to);
  const wanted = [...new Set(written.filter((each) => typeof each === "string"))].filter((target) => nodes.has(target));
  const list = rawEdges(document);
  let kept = list;
  for (let index = list.length - 1; index >= 0; index--) {
    const raw = objectOf(list[index]);
    if (raw.source === nodeId && raw.sourceHandle === handle && !wanted.includes(textOf(raw.target))) kept = removeItem(kept, index);
  }
  const known = targetsOf(document, nodeId, handle);
  for (const target of wanted) if (!known.includes(target)) kept = insertItem(kept, kept.length, newEdge(nodeId, handle, target, "end"));
  return kept === list ? document : (setIn(document, ["graph", "edges"], kept) as Document);
}
