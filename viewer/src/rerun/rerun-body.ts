/** What was typed into the dialog of a rerun, as the body that the API takes: only what differs from the original. */
import type { RerunBody } from "../api/copies";
import { isObject } from "../run-file/rows";
import type { FieldErrors, Typed } from "../run/form-values";
import type { FormField } from "../store/run";
import { texts } from "../texts";
import { inputsOf, typedInputs } from "./begin-form";
import { budgetOf, type TypedBudget } from "./budget";

const t = texts.copies;

/** What the original was started with. */
export interface FirstRequest {
  query: unknown;
  inputs: unknown;
}

export type StoredFile = Readonly<Record<string, unknown>>;

export interface TypedRerun {
  /** A text, or JSON if the original's query is not a text. */
  query: string;
  /** What stands in the form; null if it was not touched. */
  form: Typed | null;
  /** JSON, where there is no form. */
  inputs: string;
  files: "keep" | readonly StoredFile[];
  version: string;
  conversation: "new" | "same";
  isAsThen: boolean;
  budget: TypedBudget;
}

export interface RerunErrors {
  query?: string;
  form?: FieldErrors;
  inputs?: string;
  budget?: string;
}

export function isJsonQuery(query: unknown): boolean {
  return typeof query === "object" && query !== null;
}

/** Return a query or inputs as they stand in a field. */
export function writtenValue(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** Return the body of a rerun, or what is wrong. */
export function rerunBody(typed: TypedRerun, original: FirstRequest, fields: readonly FormField[]): { body: RerunBody } | { errors: RerunErrors } {
  const errors: RerunErrors = {};
  const body: RerunBody = {};
  if (typed.query !== writtenValue(original.query)) {
    if (!isJsonQuery(original.query)) body.query = typed.query;
    else {
      const query = parseObject(typed.query);
      if (query) body.query = query;
      else errors.query = t.jsonObject;
    }
  }
  const inputs = changedInputs(typed, original, fields);
  if ("value" in inputs) body.inputs = inputs.value;
  else Object.assign(errors, inputs);
  if (typed.files !== "keep") body.files = typed.files.map((file) => ({ ...file }));
  if (typed.version !== "same") body.version = typed.version;
  if (typed.conversation === "same") body.conversation = "same";
  if (typed.isAsThen) body.answers = "as_then";
  const budget = budgetOf(typed.budget);
  if ("error" in budget) errors.budget = budget.error;
  else if (budget.budget) body.budget = budget.budget;
  return Object.keys(errors).length ? { errors } : { body };
}

/** Return the inputs if they were changed, nothing if not, or what is wrong. */
export function changedInputs(
  typed: Pick<TypedRerun, "form" | "inputs">,
  original: FirstRequest,
  fields: readonly FormField[],
): { value: Record<string, unknown> } | RerunErrors {
  if (fields.length) {
    const isTouched = typed.form !== null && JSON.stringify(typed.form) !== JSON.stringify(typedInputs(fields, original.inputs));
    if (!isTouched || typed.form === null) return {};
    const result = inputsOf(fields, typed.form);
    return "errors" in result ? { form: result.errors } : { value: { ...result.inputs } };
  }
  if (typed.inputs.trim() === writtenValue(original.inputs).trim()) return {};
  const value = parseObject(typed.inputs.trim() || "{}");
  return value ? { value } : { inputs: t.jsonObject };
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? { ...value } : null;
  } catch {
    return null;
  }
}
