/** What a version begins with: its greeting, and the form that its Begin asks for. */
import { formsOf, isObject } from "../run-file/rows";
import type { Answers } from "../api/runs";
import { answersOf, type FieldErrors, type Typed } from "../run/form-values";
import type { OpenForm } from "../store/run";

export interface Begin {
  prologue: string;
  mode: string;
  form: OpenForm;
}

const CONVERSATIONAL = "conversational";

/** Return what Begin's parameters or `begin` of an agent's head say. */
export function beginOf(params: Readonly<Record<string, unknown>>): Begin {
  const inputs = isObject(params.inputs) ? params.inputs : {};
  const [form] = formsOf({ forms: { begin: { inputs } } });
  const isGreeting = params.enablePrologue !== false && typeof params.prologue === "string";
  return {
    prologue: isGreeting ? String(params.prologue) : "",
    mode: typeof params.mode === "string" && params.mode ? params.mode : CONVERSATIONAL,
    form: form ?? { nodeId: "begin", tips: null, fields: [] },
  };
}

/** Return what the Begin of a document says. */
export function beginOfDocument(document: Readonly<Record<string, unknown>>): Begin {
  const components = isObject(document.components) ? Object.values(document.components) : [];
  for (const component of components) {
    const obj = isObject(component) ? component.obj : null;
    if (isObject(obj) && obj.component_name === "Begin" && isObject(obj.params)) return beginOf(obj.params);
  }
  return beginOf({});
}

/** Return the inputs of a start, each with its type, or what is wrong with which field. */
export function inputsOf(form: OpenForm, typed: Typed): { inputs: Readonly<Record<string, unknown>> } | { errors: FieldErrors } {
  const result: { answers: Answers } | { errors: FieldErrors } = answersOf(form, typed);
  if ("errors" in result) return result;
  const values = result.answers.inputs ?? {};
  const answered = form.fields.filter((field) => field.key in values);
  return { inputs: Object.fromEntries(answered.map((field) => [field.key, { type: field.type, value: values[field.key] }])) };
}

/** Return whether a turn may have no text: its form says everything, or the agent is not one for talking. */
export function mayBeWordless(begin: Begin): boolean {
  return begin.form.fields.length > 0 || begin.mode !== CONVERSATIONAL;
}
