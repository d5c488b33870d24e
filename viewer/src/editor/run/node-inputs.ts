/** What a node reads: the references in its form, and in the forms of its body if it is a container. */
import { nodesOf, type Document } from "../document/document";
import { isList, isObject, type Json } from "../document/json";

const IN_TEXT = /\{+ *([A-Za-z0-9_:]+@[A-Za-z0-9_.-]+|(?:sys|env)\.[A-Za-z0-9_.]+|item|index) *\}+/g;
const WHOLE = /^(?:[A-Za-z0-9_]+:[A-Za-z0-9_]+@[A-Za-z0-9_.-]+|begin@[A-Za-z0-9_.-]+|(?:sys|env)\.[A-Za-z0-9_.]+)$/;
const ALWAYS_KNOWN = new Set(["sys.date", "sys.history", "sys.conversation_turns", "sys.user_id"]);

/** Return the references, the same as in the form, without braces. Those to nodes of its own body are left out. */
export function referencesIn(document: Document, nodeId: string): readonly string[] {
  const inside = new Set([nodeId]);
  for (const id of inside) for (const node of nodesOf(document).values()) if (node.parent === id) inside.add(node.id);
  const found = new Set<string>();
  for (const id of inside) collect(nodesOf(document).get(id)?.form ?? {}, found);
  const isRead = (reference: string): boolean => !inside.has(reference.split("@")[0] ?? "") && !ALWAYS_KNOWN.has(reference) && !(inside.size > 1 && ["item", "index"].includes(reference));
  return [...found].filter(isRead).sort();
}

function collect(value: Json, found: Set<string>): void {
  if (isList(value)) for (const item of value) collect(item, found);
  else if (isObject(value)) {
    for (const [key, member] of Object.entries(value)) if (key !== "outputs") collect(member, found);
    const declared = isObject(value.outputs) ? Object.values(value.outputs) : [];
    for (const output of declared) if (isObject(output) && typeof output.ref === "string") collect(output.ref, found);
  } else if (typeof value === "string") {
    if (WHOLE.test(value)) found.add(value);
    for (const match of value.matchAll(IN_TEXT)) if (match[1] !== undefined) found.add(match[1]);
  }
}
