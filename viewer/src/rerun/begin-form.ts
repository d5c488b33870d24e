/** The form of Begin, and what a run was started with, as a person edits it for a copy. */
import { formsOf, isObject, textOr } from "../run-file/rows";
import type { FormField } from "../store/run";
import { answersOf, type FieldErrors, type Typed } from "../run/form-values";

const MASK = "••••";

/** Return the fields of the form of a document's Begin; none if it has no form. */
export function beginFields(document: unknown): readonly FormField[] {
  const components = isObject(document) && isObject(document.components) ? Object.values(document.components) : [];
  for (const entry of components) {
    const obj = isObject(entry) && isObject(entry.obj) ? entry.obj : {};
    if (typeof obj.component_name !== "string" || obj.component_name.toLowerCase() !== "begin") continue;
    const inputs = isObject(obj.params) ? obj.params.inputs : null;
    return formsOf({ forms: { begin: { inputs: Array.isArray(inputs) ? byKey(inputs) : inputs } } })[0]?.fields ?? [];
  }
  return [];
}

function byKey(fields: readonly unknown[]): Readonly<Record<string, unknown>> {
  const named = fields.filter(isObject).map((field) => [textOr(field.key, "") || textOr(field.name, ""), field] as const);
  return Object.fromEntries(named.filter(([name]) => name));
}

/** Return what stands in the form at first: what the run was started with. A password is not known and stays empty. */
export function typedInputs(fields: readonly FormField[], inputs: unknown): Typed {
  const given = isObject(inputs) ? inputs : {};
  return Object.fromEntries(
    fields.map((field) => {
      const value = plainValue(given[field.key]);
      return [field.key, hasMask(value) ? null : (value ?? null)];
    }),
  );
}

/** Return a value without the description of its field, with which API clients may send it. */
function plainValue(value: unknown): unknown {
  return isObject(value) && "value" in value ? value.value : value;
}

/** Whether a value contains the mask of a secret, in place of what is stored. */
export function hasMask(value: unknown): boolean {
  return value !== undefined && (JSON.stringify(value) ?? "").includes(MASK);
}

/** Return the inputs of a copy by what was typed into the form, or what is wrong with which field. */
export function inputsOf(fields: readonly FormField[], typed: Typed): { inputs: Readonly<Record<string, unknown>> } | { errors: FieldErrors } {
  const result = answersOf({ nodeId: "begin", tips: null, fields }, typed);
  if ("errors" in result) return result;
  const answers = result.answers.inputs ?? {};
  const filled = fields.filter((field) => field.key in answers);
  return { inputs: Object.fromEntries(filled.map((field) => [field.key, { value: answers[field.key], type: field.type, optional: field.isOptional }])) };
}
