/**
 * JSON that is changed without loss: values are immutable, the order of keys stays, and a number that JavaScript would
 * write differently (`1.0`, 2^60 + 1) is written as it was read, as long as its value is not changed.
 */

export type Json = null | boolean | number | string | readonly Json[] | JsonObject;
export interface JsonObject {
  readonly [key: string]: Json;
}
export type Path = readonly (string | number)[];

/** How numbers were written, by the object or list that has them. */
const sources = new WeakMap<object, ReadonlyMap<string, string>>();

const NUMBER = "\u0000number"; // the key that marks a number which JavaScript would write differently
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;

/** Parse JSON. Raises SyntaxError. */
export function readJson(text: string): Json {
  let isExact = true;
  const marked = text.replace(TOKENS, (token) => {
    if (token.startsWith('"') || String(Number(token)) === token) return token;
    isExact = false;
    return `{"\\u0000number":"${token}"}`;
  });
  if (isExact) return JSON.parse(text) as Json;
  return JSON.parse(marked, function (this: object, key: string, value: Json): Json {
    if (!isObject(value)) return value;
    const source = value[NUMBER];
    if (typeof source !== "string") return value;
    sources.set(this, new Map([...(sources.get(this) ?? []), [key, source]]));
    return Number(source);
  }) as Json;
}

/** Return a value as JSON; with an indent for people. */
export function writeJson(value: Json, indent = 0, level = 1): string {
  const [start, end] = indent ? [`\n${" ".repeat(indent * level)}`, `\n${" ".repeat(indent * (level - 1))}`] : ["", ""];
  const written = (holder: object, key: string, member: Json): string => {
    const source = typeof member === "number" ? sources.get(holder)?.get(key) : undefined;
    return source !== undefined && Number(source) === member ? source : writeJson(member, indent, level + 1);
  };
  const joined = (open: string, parts: readonly string[], close: string): string =>
    parts.length ? `${open}${parts.map((part) => start + part).join(",")}${end}${close}` : open + close;
  if (isList(value)) return joined("[", value.map((item, index) => written(value, String(index), item)), "]");
  if (!isObject(value)) return JSON.stringify(value);
  const colon = indent ? ": " : ":";
  return joined("{", Object.entries(value).map(([key, member]) => `${JSON.stringify(key)}${colon}${written(value, key, member)}`), "}");
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function isList(value: unknown): value is readonly Json[] {
  return Array.isArray(value);
}

/** Return an object; an empty one for anything else. */
export function objectOf(value: Json | undefined): JsonObject {
  return isObject(value) ? value : {};
}

export function listOf(value: Json | undefined): readonly Json[] {
  return isList(value) ? value : [];
}

export function textOf(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}

// -- changes -----------------------------------------------------------------------------------------------------------
export function withMember(object: JsonObject, key: string, value: Json): JsonObject {
  if (Object.hasOwn(object, key) && object[key] === value) return object;
  return keepSources(object, { ...object, [key]: value });
}

export function withoutMember(object: JsonObject, key: string): JsonObject {
  if (!Object.hasOwn(object, key)) return object;
  return keepSources(object, Object.fromEntries(Object.entries(object).filter(([each]) => each !== key)));
}

export function withItem(list: readonly Json[], index: number, value: Json): readonly Json[] {
  return list[index] === value ? list : keepSources(list, list.with(index, value));
}

export function insertItem(list: readonly Json[], index: number, value: Json): readonly Json[] {
  return keepSources(list, list.toSpliced(index, 0, value), (place) => (place < index ? place : place + 1));
}

export function removeItem(list: readonly Json[], index: number): readonly Json[] {
  return keepSources(list, list.toSpliced(index, 1), (place) => (place === index ? null : place < index ? place : place - 1));
}

/** Return the value with another one at a path; undefined removes it. Objects on the way are made where they are missing. */
export function setIn(value: Json | undefined, path: Path, set: Json | undefined): Json {
  const [key, ...rest] = path;
  if (key === undefined) return set ?? null;
  if (isList(value) && Number.isInteger(Number(key))) {
    const index = Number(key);
    if (!rest.length && set === undefined) return index < value.length ? removeItem(value, index) : value;
    const changed = setIn(value[index], rest, set);
    return index < value.length ? withItem(value, index, changed) : insertItem(value, value.length, changed);
  }
  const object = objectOf(value);
  if (!rest.length && set === undefined) return withoutMember(object, String(key));
  if (typeof key === "number" && !isObject(value)) return [setIn(undefined, rest, set)];
  return withMember(object, String(key), setIn(object[key], rest, set));
}

export function getIn(value: Json | undefined, path: Path): Json | undefined {
  let at: Json | undefined = value;
  for (const key of path) {
    if (isList(at)) at = at[Number(key)];
    else if (isObject(at) && Object.hasOwn(at, key)) at = at[key];
    else return undefined;
  }
  return at;
}

function keepSources<T extends object>(from: object, to: T, move: (index: number) => number | null = (index) => index): T {
  const known = sources.get(from);
  if (!known) return to;
  const moved = [...known].flatMap(([key, source]): [string, string][] => {
    const place = Array.isArray(from) ? move(Number(key)) : key;
    return place === null ? [] : [[String(place), source]];
  });
  sources.set(to, new Map(moved));
  return to;
}

/** Return whether two values are the same JSON; the order of keys counts. */
export function isEqual(one: Json | undefined, other: Json | undefined): boolean {
  if (one === other) return true;
  if (isList(one) && isList(other)) return one.length === other.length && one.every((item, index) => isEqual(item, other[index]));
  if (!isObject(one) || !isObject(other)) return false;
  const [keys, others] = [Object.keys(one), Object.keys(other)];
  return keys.length === others.length && keys.every((key, index) => key === others[index] && isEqual(one[key], other[key]));
}
