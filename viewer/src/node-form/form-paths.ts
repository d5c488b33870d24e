/** Paths into a form: as the API's findings write them, and as changes have them. */
import { isMembers } from "../catalogue/parse-catalogue";
import type { Finding, FormChange } from "./contract";

export type Path = readonly (string | number)[];
type Members = Readonly<Record<string, unknown>>;

/** Write a path as findings do: `conditions[0].items[1].cpn_id`. */
export function pathText(path: Path): string {
  return path.map((step, place) => (typeof step === "number" ? `[${step}]` : place === 0 ? step : `.${step}`)).join("");
}

export function valueAt(value: unknown, path: Path): unknown {
  let at = value;
  for (const step of path) {
    if (Array.isArray(at)) at = (at as unknown[])[Number(step)];
    else if (isMembers(at) && Object.hasOwn(at, step)) at = at[step];
    else return undefined;
  }
  return at;
}

/**
 * Return the change that sets a value at a path. A field that the form does not have yet is made out of its default, so
 * that a change inside of it does not lose the rest.
 */
export function changeAt(form: Members, defaults: Members, path: Path, value: unknown): FormChange {
  const [name = "", ...rest] = path;
  if (rest.length === 0) return { path, value };
  const holder = valueAt(form, path.slice(0, -1));
  if (isMembers(holder) || Array.isArray(holder)) return { path, value };
  for (let length = path.length - 2; length > 0; length--) {
    const above = valueAt(form, path.slice(0, length));
    if (isMembers(above) || Array.isArray(above)) return { path: path.slice(0, length + 1), value: withValue(undefined, path.slice(length + 1), value) };
  }
  const base = valueAt(form, [name]) ?? defaults[name];
  return { path: [name], value: withValue(base, rest, value) };
}

/** Return a value with another one at a path inside of it; undefined removes the member. */
export function withValue(value: unknown, path: Path, set: unknown): unknown {
  const [step, ...rest] = path;
  if (step === undefined) return set;
  if (typeof step === "number") {
    const list = Array.isArray(value) ? (value as unknown[]) : [];
    if (rest.length === 0 && set === undefined) return list.filter((_, place) => place !== step);
    const changed = withValue(list[step], rest, set);
    return step < list.length ? list.with(step, changed) : [...list, changed];
  }
  const members = isMembers(value) ? value : {};
  if (rest.length === 0 && set === undefined) return Object.fromEntries(Object.entries(members).filter(([key]) => key !== step));
  return { ...members, [step]: withValue(members[step], rest, set) };
}

/** Return the path of a finding in the form; a run has some fields in another shape than the editor's form. */
export function fieldInForm(field: string, form: Members): string {
  const category = /^category_description(?:\.(.*))?$/.exec(field);
  if (!category || !Array.isArray(form.items)) return field;
  const rest = category[1] ?? "";
  const names = form.items.map((row: unknown) => (isMembers(row) && typeof row.name === "string" ? row.name : ""));
  const place = names.findIndex((name) => rest === name || rest.startsWith(`${name}.`));
  return place < 0 ? "items" : `items[${place}]${rest.slice(names[place]?.length ?? 0)}`;
}

/** Return the findings by the field that shows them: the innermost one that the finding is in; "" for no field at all. */
export function placeFindings(findings: readonly Finding[], form: Members, fields: Iterable<string>): ReadonlyMap<string, readonly Finding[]> {
  const shown = [...fields];
  const placed = new Map<string, Finding[]>();
  for (const finding of findings) {
    const place = finding.field === null ? "" : placeOf(fieldInForm(finding.field, form), shown);
    placed.set(place, [...(placed.get(place) ?? []), finding]);
  }
  return placed;
}

/** Return the innermost of the fields that a path is in; "" for none. */
export function placeOf(path: string, fields: readonly string[]): string {
  const around = fields.filter((field) => path === field || (path.startsWith(field) && /[.[]/.test(path.charAt(field.length))));
  return around.reduce((best, field) => (field.length > best.length ? field : best), "");
}

/** Whether two JSON values are equal, whatever the order of keys. */
export function isSame(one: unknown, other: unknown): boolean {
  if (Object.is(one, other)) return true;
  if (Array.isArray(one) && Array.isArray(other)) return one.length === other.length && one.every((item, place) => isSame(item, other[place]));
  if (!isMembers(one) || !isMembers(other)) return false;
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => Object.hasOwn(other, key) && isSame(one[key], other[key]));
}
