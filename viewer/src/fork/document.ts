/** What of a document a fork can change: parameters of nodes, and variables. */
import { hasMask } from "../rerun/begin-form";
import { isObject } from "../run-file/rows";

/** Parameters that are changed most often, before all others. */
const FIRST = ["sys_prompt", "prompts", "llm_id", "temperature"];
const NOT_EDITED = ["sys.query", "sys.history", "sys.files", "sys.user_id", "sys.conversation_turns"];

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

/** Return the variables that a fork can change, by the values that its source began with; those of the request are not among them. */
export function variablesOf(globals: Readonly<Record<string, unknown>>): NamedValues {
  return new Map(Object.entries(globals).filter(([name, value]) => !NOT_EDITED.includes(name) && !hasMask(value)));
}
