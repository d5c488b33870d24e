/** JSON Patches (RFC 6902) between two documents. What both have in common is in no patch, so it stays as it is written. */
import { getIn, insertItem, isEqual, isList, isObject, objectOf, listOf, removeItem, setIn, withMember, writeJson, type Json, type JsonObject, type Path } from "./json";

export type Operation =
  | { op: "add" | "replace"; path: string; value: Json }
  | { op: "remove"; path: string }
  | { op: "move"; from: string; path: string };
export type Patch = readonly Operation[];

/** Return the patch that makes one value out of another; its inverse is the patch of the other direction. */
export function patchBetween(before: Json, after: Json): Patch {
  const operations: Operation[] = [];
  compare(before, after, [], operations);
  return operations;
}

export function writePatch(patch: Patch): string {
  return writeJson(patch);
}

/** Return the value after a patch. Raises RangeError for a path that does not exist. */
export function applyPatch(value: Json, patch: Patch): Json {
  return patch.reduce((now, operation) => {
    const path = parsePointer(now, operation.path);
    switch (operation.op) {
      case "replace":
        return setIn(now, path, operation.value);
      case "add":
        return insertAt(now, path, operation.value);
      case "remove":
        return removeAt(now, path);
      case "move": {
        const from = parsePointer(now, operation.from);
        const moved = getIn(now, from);
        if (moved === undefined) throw new RangeError(`The patch moves ${operation.from}, which does not exist.`);
        return insertAt(removeAt(now, from), path, moved);
      }
    }
  }, value);
}

function compare(before: Json, after: Json, path: Path, operations: Operation[]): void {
  if (before === after) return;
  if (isObject(before) && isObject(after)) compareObjects(before, after, path, operations);
  else if (isList(before) && isList(after)) {
    if (haveIds(before) && haveIds(after)) compareById(before, after, path, operations);
    else compareLists(before, after, path, operations);
  } else operations.push({ op: "replace", path: pointer(path), value: after });
}

function compareObjects(before: JsonObject, after: JsonObject, path: Path, operations: Operation[]): void {
  const staying = Object.keys(before).filter((key) => Object.hasOwn(after, key));
  const added = Object.keys(after).filter((key) => !Object.hasOwn(before, key));
  const isInOrder = [...staying, ...added].every((key, index) => key === Object.keys(after)[index]);
  if (path.length && !isInOrder) {
    operations.push({ op: "replace", path: pointer(path), value: after }); // a patch adds keys at the end only
    return;
  }
  for (const key of Object.keys(before)) if (!Object.hasOwn(after, key)) operations.push({ op: "remove", path: pointer([...path, key]) });
  for (const key of staying) compare(before[key] ?? null, after[key] ?? null, [...path, key], operations);
  for (const key of added) operations.push({ op: "add", path: pointer([...path, key]), value: after[key] ?? null });
}

function haveIds(list: readonly Json[]): list is readonly (JsonObject & { id: string })[] {
  const ids = list.map((item) => objectOf(item).id);
  return ids.every((id) => typeof id === "string") && new Set(ids).size === ids.length;
}

type Item = JsonObject & { id: string };

function compareById(before: readonly Item[], after: readonly Item[], path: Path, operations: Operation[]): void {
  const wanted = new Set(after.map((item) => item.id));
  const now = [...before];
  for (let index = now.length - 1; index >= 0; index--) {
    if (wanted.has(now[index]?.id ?? "")) continue;
    operations.push({ op: "remove", path: pointer([...path, index]) });
    now.splice(index, 1);
  }
  after.forEach((item, index) => {
    const at = now.findIndex((each) => each.id === item.id);
    const [known] = at < 0 ? [undefined] : now.splice(at, 1);
    now.splice(index, 0, item);
    if (known === undefined) operations.push({ op: "add", path: pointer([...path, index]), value: item });
    else {
      if (at !== index) operations.push({ op: "move", from: pointer([...path, at]), path: pointer([...path, index]) });
      compare(known, item, [...path, index], operations);
    }
  });
}

/** Compare what lies between the common beginning and the common end. */
function compareLists(before: readonly Json[], after: readonly Json[], path: Path, operations: Operation[]): void {
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && isEqual(before[start], after[start])) start++;
  let end = 0;
  while (end < shorter - start && isEqual(before[before.length - 1 - end], after[after.length - 1 - end])) end++;
  const common = shorter - end;
  for (let index = start; index < common; index++) compare(before[index] ?? null, after[index] ?? null, [...path, index], operations);
  for (let index = before.length - end - 1; index >= common; index--) operations.push({ op: "remove", path: pointer([...path, index]) });
  for (let index = common; index < after.length - end; index++) operations.push({ op: "add", path: pointer([...path, index]), value: after[index] ?? null });
}

function insertAt(value: Json, path: Path, added: Json): Json {
  const [parent, last] = [path.slice(0, -1), path.at(-1)];
  if (last === undefined) return added;
  const holder = getIn(value, parent);
  if (isList(holder)) return setIn(value, parent, insertItem(holder, Number(last), added));
  if (!isObject(holder)) throw new RangeError(`The patch adds to ${pointer(parent)}, which does not exist.`);
  return setIn(value, parent, withMember(holder, String(last), added));
}

function removeAt(value: Json, path: Path): Json {
  const holder = getIn(value, path.slice(0, -1));
  if (getIn(value, path) === undefined) throw new RangeError(`The patch removes ${pointer(path)}, which does not exist.`);
  if (isList(holder)) return setIn(value, path.slice(0, -1), removeItem(listOf(holder), Number(path.at(-1))));
  return setIn(value, path, undefined);
}

function pointer(path: Path): string {
  return path.map((key) => `/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
}

function parsePointer(value: Json, text: string): Path {
  const keys = text.split("/").slice(1).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
  let at: Json | undefined = value;
  return keys.map((key) => {
    const step = isList(at) ? Number(key) : key;
    at = at === undefined ? undefined : getIn(at, [step]);
    return step;
  });
}
