/** What a message says, out of what is stored of it: a text, the outputs of the node that answered, or a preview. */

export interface MessageContent {
  text: string;
  /** The size in bytes of a text of which only the beginning is shown. */
  cutFrom: number | null;
  /** Names of further outputs. */
  others: readonly string[];
}

const TEXT_NAMES = ["content", "answer", "result"];

export function contentOf(content: unknown): MessageContent {
  const text = textOf(content);
  if (text) return { ...text, others: [] };
  if (typeof content !== "object" || content === null || Array.isArray(content)) {
    return { text: content === null || content === undefined ? "" : JSON.stringify(content), cutFrom: null, others: [] };
  }
  const outputs = content as Record<string, unknown>;
  const name = TEXT_NAMES.find((each) => textOf(outputs[each]) !== null);
  const others = Object.keys(outputs).filter((each) => each !== name && !each.startsWith("_") && !isEmpty(outputs[each]));
  const shown = name === undefined ? null : textOf(outputs[name]);
  return { text: shown?.text ?? "", cutFrom: shown?.cutFrom ?? null, others };
}

function isEmpty(value: unknown): boolean {
  return value === null || value === "" || (typeof value === "object" && !Object.keys(value ?? {}).length);
}

function textOf(value: unknown): { text: string; cutFrom: number | null } | null {
  if (typeof value === "string") return { text: value, cutFrom: null };
  if (typeof value !== "object" || value === null) return null;
  const { $preview, bytes } = value as Record<string, unknown>;
  return typeof $preview === "string" ? { text: $preview, cutFrom: typeof bytes === "number" ? bytes : 0 } : null;
}
