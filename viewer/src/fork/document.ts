/** What of a document a fork can change: parameters of nodes, and variables. */
import { hasMask } from "../rerun/begin-form";
import { isObject } from "../run-file/rows";

/** Parameters that are changed most often, before all others. */
const FIRST = ["sys_prompt", "prompts", "llm_id", "temperature"];
const NOT_EDITED = ["sys.query", "sys.history", "sys.files", "sys.user_id", "sys.conversation_turns"];

export interface NamedValues {
  values: ReadonlyMap<string, unknown>;
  /** Whether some were left out because they contain a secret. */
  hasSecrets: boolean;
}

/** Return the parameters of a node. A mask in place of a secret would be stored as it is, so such parameters are left out. */
export function paramsOf(document: unknown, nodeId: string): NamedValues {
  const entry = isObject(document) && isObject(document.components) ? document.components[nodeId] : null;
  const obj = isObject(entry) && isObject(entry.obj) ? entry.obj : {};
  const params = isObject(obj.params) ? obj.params : {};
  const rank = (name: string): number => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  const names = Object.keys(params).sort((a, b) => rank(a) - rank(b));
  const open = names.filter((name) => !hasMask(params[name]));
  return { values: new Map(open.map((name) => [name, params[name]])), hasSecrets: open.length < names.length };
}

/** Return the variables of a document with the values that a first turn begins with. */
export function variablesOf(document: unknown): NamedValues {
  const globals = isObject(document) && isObject(document.globals) ? document.globals : {};
  const declared = isObject(document) && isObject(document.variables) ? document.variables : {};
  const values = new Map(Object.entries(globals).filter(([name]) => !NOT_EDITED.includes(name)));
  for (const [name, variable] of Object.entries(declared)) {
    if (isObject(variable) && !values.has(`env.${name}`)) values.set(`env.${name}`, variable.value ?? null);
  }
  const open = [...values].filter(([, value]) => !hasMask(value));
  return { values: new Map(open), hasSecrets: open.length < values.size };
}
