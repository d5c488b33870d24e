/** The form of an agent's Begin, and the inputs of a start. */
import type { AgentHead } from "../api/replies";
import type { FormField } from "../store/run";

/** Return the fields of a Begin's form, in their order. */
export function beginFields(begin: AgentHead["begin"]): FormField[] {
  const inputs = typeof begin.inputs === "object" && begin.inputs !== null ? (begin.inputs as Record<string, unknown>) : {};
  return Object.entries(inputs).map(([key, value]) => {
    const field = typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
    return {
      key,
      name: typeof field.name === "string" && field.name ? field.name : key,
      type: typeof field.type === "string" ? field.type : "line",
      isOptional: field.optional === true,
      options: Array.isArray(field.options) ? field.options.filter((option): option is string => typeof option === "string") : [],
      value: field.value ?? null,
    };
  });
}

/** Return the inputs of a start: each value with the type of its field, as RAGFlow's pages send them. */
export function startInputs(fields: readonly FormField[], values: Readonly<Record<string, unknown>>): Record<string, unknown> | undefined {
  const given = fields.filter((field) => values[field.key] !== undefined);
  return given.length ? Object.fromEntries(given.map(({ key, name, type }) => [key, { name, type, value: values[key] }])) : undefined;
}

export function isWebhook(begin: AgentHead["begin"]): boolean {
  return begin.mode === "Webhook";
}

/** Return a webhook's body as inputs, or null if the text is not a JSON object; an empty text has none. */
export function webhookInputs(text: string): { inputs?: Record<string, unknown> } | null {
  if (!text.trim()) return {};
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { inputs: { body: { value } } } : null;
  } catch {
    return null;
  }
}
