/** What a person typed into a form, as the answers that the API takes. */
import type { FormField, OpenForm } from "../store/run";
import { texts } from "../texts";
import type { Answers } from "../api/runs";

const t = texts.forms;
const OUTCOME = ".outcome";
const OUTPUTS = ".outputs";

/** What is in a form's controls: texts, ticks, and uploaded files. */
export type Typed = Readonly<Record<string, unknown>>;

/** Return what is in the controls: what was typed, else what the author has preset. */
export function typedInto(form: OpenForm, changed: Typed): Typed {
  return { ...Object.fromEntries(form.fields.map((field) => [field.key, field.value])), ...changed };
}

export type FieldErrors = Readonly<Record<string, string>>;

/** Return the node about whose action a form asks (`on_unknown`); null for a form of the canvas. */
export function questionOf(form: OpenForm): string | null {
  const field = form.fields.find((each) => each.key.endsWith(OUTCOME));
  return field ? field.key.slice(0, -OUTCOME.length) : null;
}

/** Return the answers to the fields of a form, or what is wrong with which field. */
export function answersOf(form: OpenForm, typed: Typed): { answers: Answers } | { errors: FieldErrors } {
  const inputs: Record<string, unknown> = {};
  const errors: Record<string, string> = {};
  for (const field of form.fields) {
    const result = valueOf(field, typed[field.key]);
    if (result.error !== undefined) errors[field.key] = result.error;
    else if (result.value !== undefined) inputs[field.key] = result.value;
  }
  return Object.keys(errors).length ? { errors } : { answers: { inputs } };
}

/** Return the answers to a question about an action; `outputs` is JSON or empty. */
export function outcomeAnswers(node: string, outcome: "happened" | "again", outputs: string): { answers: Answers } | { error: string } {
  if (outcome === "again" || !outputs.trim()) return { answers: { outcomes: { [node]: outcome } } };
  try {
    const value: unknown = JSON.parse(outputs);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return { error: t.json };
    return { answers: { inputs: { [node + OUTCOME]: outcome, [node + OUTPUTS]: value } } };
  } catch {
    return { error: t.json };
  }
}

function valueOf(field: FormField, typed: unknown): { value?: unknown; error?: string } {
  if (field.type === "boolean") return { value: typed === true };
  const isMissing = typed === undefined || typed === null || (typeof typed === "string" && typed.trim() === "");
  if (isMissing) return field.isOptional ? {} : { error: t.required };
  if (field.type === "integer" || field.type === "number") {
    const number = Number(typed);
    return Number.isFinite(number) ? { value: number } : { error: t.number };
  }
  if (field.type.includes("file")) return { value: { type: field.type, value: typed } }; // a bare descriptor would be taken for an answer
  return { value: typed };
}
