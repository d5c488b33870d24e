/** The nodes that two documents have in different ways, and joining two changes of one document. */
import { containersFirst } from "./containers";
import { nodesOf, rawEdges, rawNodes, type Document, type DrawnNode } from "./document";
import { isEqual, isObject, objectOf, setIn, textOf, withMember, withoutMember, type Json, type JsonObject } from "./json";

type Nodes = ReadonlyMap<string, DrawnNode>;

/** Entries follow from the drawing, and a run does not read places and what React Flow notes. */
const FOLLOWING = new Set(["components", "graph"]);
const VIEW_STATE = new Set(["position", "positionAbsolute", "measured", "width", "height", "selected", "dragging", "resizing", "style"]);

/** Return the nodes whose next run differs from that of another document: their form, or where they lead. */
export function changedNodes(before: Document, after: Document): ReadonlySet<string> {
  const old = nodesOf(before);
  const isChanged = ({ id, raw }: DrawnNode): boolean => {
    const was = old.get(id);
    return !was || !isEqual(withoutViewState(was.raw), withoutViewState(raw));
  };
  const ids = [...nodesOf(after).values()].filter(isChanged).map(({ id }) => id);
  const [edges, others] = [edgeKeys(before), edgeKeys(after)];
  const sources = [...edges, ...others].filter((key) => edges.has(key) !== others.has(key)).map((key) => textOf((JSON.parse(key) as Json[])[0]));
  return new Set([...ids, ...sources]);
}

function withoutViewState(raw: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(raw).filter(([key]) => !VIEW_STATE.has(key)));
}

function edgeKeys(document: Document): ReadonlySet<string> {
  return new Set(rawEdges(document).map((raw) => {
    const { source, sourceHandle, target, targetHandle } = objectOf(raw);
    return JSON.stringify([source ?? "", sourceHandle ?? "", target ?? "", targetHandle ?? ""]);
  }));
}

/** Return the document with the changes of both sides; null where both have changed the same node, edge or key. */
export function merge(base: Document, mine: Document, theirs: Document): Document | null {
  let merged: Document = theirs; // its entries follow from the drawing, so theirs are as good as mine
  for (const key of new Set([...Object.keys(base), ...Object.keys(mine)])) {
    if (FOLLOWING.has(key) || isEqual(base[key], mine[key])) continue;
    const one = mergeMembers(base[key], mine[key], theirs[key]);
    if (one === null) return null;
    merged = one.value === undefined ? withoutMember(merged, key) : withMember(merged, key, one.value);
  }
  for (const list of ["nodes", "edges"] as const) {
    const lists = [base, mine, theirs].map((each) => (list === "nodes" ? rawNodes(each) : rawEdges(each))) as [readonly Json[], readonly Json[], readonly Json[]];
    const joined = mergeLists(...lists);
    if (joined === null) return null;
    merged = setIn(merged, ["graph", list], joined) as Document;
  }
  return hasLooseEnds(merged) ? null : containersFirst(merged);
}

/** Return what two changes of a document have both changed, by name: nodes, edges, and other keys such as `variables`. */
export function changedByBoth(base: Document, mine: Document, theirs: Document): readonly string[] {
  const keys = [...new Set([...Object.keys(mine), ...Object.keys(theirs)])].filter((key) => !FOLLOWING.has(key) && mergeMembers(base[key], mine[key], theirs[key]) === null);
  const [old, own, other] = [base, mine, theirs].map(nodesOf) as [Nodes, Nodes, Nodes];
  const differs = (one: DrawnNode | undefined, two: DrawnNode | undefined): boolean => !isEqual(one?.raw, two?.raw);
  const isBoth = (id: string): boolean => differs(old.get(id), own.get(id)) && differs(old.get(id), other.get(id)) && differs(own.get(id), other.get(id));
  const ids = [...new Set([...old.keys(), ...own.keys(), ...other.keys()])].filter(isBoth);
  return [...ids.map((id) => (own.get(id) ?? other.get(id))?.name ?? id), ...keys];
}

/** Merge two changes of an object member by member; null where both have changed one. */
function mergeMembers(base: Json | undefined, mine: Json | undefined, theirs: Json | undefined): { value: Json | undefined } | null {
  if (isEqual(base, theirs) || isEqual(mine, theirs)) return { value: mine };
  if (isEqual(base, mine)) return { value: theirs };
  if (!isObject(mine) || !isObject(theirs)) return null;
  const known = objectOf(base);
  let merged: JsonObject = theirs;
  for (const key of new Set([...Object.keys(known), ...Object.keys(mine)])) {
    if (isEqual(known[key], mine[key])) continue;
    if (!isEqual(known[key], theirs[key]) && !isEqual(mine[key], theirs[key])) return null;
    const value = mine[key];
    merged = value === undefined ? withoutMember(merged, key) : withMember(merged, key, value);
  }
  return { value: merged };
}

function mergeLists(base: readonly Json[], mine: readonly Json[], theirs: readonly Json[]): readonly Json[] | null {
  const byId = (list: readonly Json[]): Map<string, Json> => new Map(list.map((raw) => [textOf(objectOf(raw).id), raw]));
  const [old, own, other] = [byId(base), byId(mine), byId(theirs)];
  const result: Json[] = [];
  for (const [id, raw] of other) {
    const [was, is] = [old.get(id), own.get(id)];
    if (was !== undefined && is === undefined) {
      if (!isEqual(was, raw)) return null; // I have removed what they have changed
      continue;
    }
    if (is === undefined || isEqual(was, is)) result.push(raw);
    else if (isEqual(was, raw) || isEqual(is, raw)) result.push(is);
    else return null;
  }
  for (const [id, raw] of own) {
    if (other.has(id)) continue;
    if (!old.has(id)) result.push(raw);
    else if (!isEqual(old.get(id), raw)) return null; // they have removed what I have changed
  }
  return result;
}

/** Whether an edge has lost an end, or a node its container. */
function hasLooseEnds(document: Document): boolean {
  const nodes = nodesOf(document);
  if ([...nodes.values()].some(({ parent }) => parent !== null && !nodes.has(parent))) return true;
  return rawEdges(document).some((raw) => !nodes.has(textOf(objectOf(raw).source)) || !nodes.has(textOf(objectOf(raw).target)));
}
