/** What of a document a fork can change: parameters of nodes, and variables. */
import { hasMask } from "../rerun/begin-form";
import { isObject } from "../run-file/rows";

/** Parameters that are changed most often, before all others. */
const FIRST = ["sys_prompt", "prompts", "llm_id", "temperature"];
const NOT_EDITED = ["sys.query", "sys.history", "sys.files", "sys.user_id", "sys.conversation_turns"];
const ENV = "env.";
const EMPTY: ReadonlyMap<string, unknown> = new Map<string, unknown>([["number", 0], ["boolean", false], ["object", {}]]);

export type NamedValues = ReadonlyMap<string, unknown>;

/** Return the parameters of a node, with masks in place of secrets: a mask that is sent back keeps its secret. */
export function paramsOf(document: unknown, nodeId: string): NamedValues {
  const entry = isObject(document) && isObject(document.components) ? document.components[nodeId] : null;
  const obj = isObject(entry) && isObject(entry.obj) ? entry.obj : {};
  const params = isObject(obj.params) ? obj.params : {};
  const rank = (name: string): number => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  const names = Object.keys(params).sort((a, b) => rank(a) - rank(b));
  return new Map(names.map((name) => [name, params[name]]));
}

/**
 * Return the variables that a fork can change, without those of the request and secrets: those of its source by the
 * values that it began with, then those that only the version of the fork has, by the values that it gives them.
 */
export function variablesOf(globals: Readonly<Record<string, unknown>>, document?: unknown): NamedValues {
  const all = { ...versionVariables(document), ...globals };
  const ordered = [...new Set([...Object.keys(globals), ...Object.keys(all)])];
  return new Map(ordered.filter((name) => !NOT_EDITED.includes(name) && !hasMask(all[name])).map((name) => [name, all[name]]));
}

/** Return what a document gives its own variables: `env.*` as declared, other globals as they stand. */
function versionVariables(document: unknown): Readonly<Record<string, unknown>> {
  if (!isObject(document)) return {};
  const stored = isObject(document.globals) ? document.globals : {};
  const declared = isObject(document.variables) ? document.variables : {};
  const names = [...Object.keys(stored).filter((name) => !name.startsWith("sys.")), ...Object.keys(declared).map((name) => `${ENV}${name}`)];
  return Object.fromEntries(names.map((name) => [name, name.startsWith(ENV) ? declaredValue(declared[name.slice(ENV.length)]) : stored[name]]));
}

/** Return the value that a run begins with: as declared, or the empty one of the declared type. */
function declaredValue(variable: unknown): unknown {
  if (!isObject(variable)) return "";
  if (variable.value !== undefined && variable.value !== null) return variable.value;
  const type = typeof variable.type === "string" ? variable.type.toLowerCase() : "";
  if (type.startsWith("array")) return [];
  return EMPTY.get(type) ?? "";
}
