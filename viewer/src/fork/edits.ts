/** What a fork changes: edits as they are typed, and the body that the API takes. */
import type { ForkBody } from "../api/copies";
import { isObject } from "../run-file/rows";
import type { Typed } from "../run/form-values";
import { inputsOf } from "../rerun/begin-form";
import type { TypedBudget } from "../rerun/budget";
import { budgetOf } from "../rerun/budget";
import type { FormField } from "../store/run";
import { texts } from "../texts";
import { paramsOf, type NamedValues } from "./document";

const t = texts.copies;
const SECRET = /^••••[0-9a-f]{8}$/;
const HIDDEN = "••••";

export const EDIT_KINDS = ["param", "output", "variable", "query", "inputs"] as const;
export type EditKind = (typeof EDIT_KINDS)[number];

export interface Edit {
  kind: EditKind;
  /** The node of a parameter, or the place of a step whose output is edited; empty otherwise. */
  owner: string;
  /** The parameter, output or variable; empty for query and inputs. */
  name: string;
  /** What is shown as its name. */
  title: string;
  /** A text is edited as it is, everything else as JSON. */
  isText: boolean;
  /** The value is a secret: `original` is its mask, and only another value is sent. */
  isSecret: boolean;
  original: string;
  typed: string;
}

export function editKey({ kind, owner, name }: Pick<Edit, "kind" | "owner" | "name">): string {
  return JSON.stringify([kind, owner, name]);
}

/** Return an edit of a value that has not been changed yet. */
export function newEdit(kind: EditKind, owner: string, name: string, title: string, value: unknown): Edit {
  const isText = typeof value === "string";
  const written = isText ? value : JSON.stringify(value ?? null, null, 2);
  return { kind, owner, name, title, isText, isSecret: isText && SECRET.test(value), original: written, typed: written };
}

/** Return an edit of a parameter or variable with the value that another version gives it as its original. */
export function rebased(edit: Edit, document: unknown, variables: NamedValues | null = null): Edit {
  const values = edit.kind === "param" ? paramsOf(document, edit.owner) : edit.kind === "variable" ? variables : null;
  if (!values?.has(edit.name)) return edit;
  const other = newEdit(edit.kind, edit.owner, edit.name, edit.title, values.get(edit.name));
  return { ...other, typed: edit.typed === edit.original ? other.typed : edit.typed };
}

export function isSent(edit: Edit): boolean {
  return edit.typed !== edit.original;
}

/** Return what was typed into the form of Begin. */
export function typedForm(edit: Edit): Typed {
  const value: unknown = JSON.parse(edit.typed);
  return isObject(value) ? value : {};
}

/** Return an edit before and after as it is shown, without the passwords of a form. */
export function shownTexts(edit: Edit, fields: readonly FormField[]): [before: string, after: string] {
  const secret = edit.kind === "inputs" ? fields.filter((field) => field.type === "password").map((field) => field.key) : [];
  if (!secret.length) return [edit.original, edit.typed];
  const hide = (key: string, value: unknown): unknown => (secret.includes(key) && value ? HIDDEN : value);
  const shown = (written: string): string => JSON.stringify(JSON.parse(written), hide, 2);
  return [shown(edit.original), shown(edit.typed)];
}

/** Return the value of an edit, or what is wrong with it. `fields` are those of Begin's form, which inputs are typed into. */
export function valueOf(edit: Edit, fields: readonly FormField[]): { value: unknown } | { error: string } {
  if (edit.isText) return { value: edit.typed };
  if (edit.kind === "inputs" && fields.length) {
    const result = inputsOf(fields, typedForm(edit));
    return "errors" in result ? { error: t.inputsWrong } : { value: result.inputs };
  }
  try {
    const value: unknown = JSON.parse(edit.typed);
    if (edit.kind === "inputs" && !isObject(value)) return { error: t.jsonObject };
    return { value };
  } catch {
    return { error: t.json };
  }
}

export interface TypedFork {
  place: string;
  /** same, draft, published, or the id of a version. */
  version: string;
  /** The fields of Begin's form in that version; none if it has no form. */
  fields: readonly FormField[];
  edits: readonly Edit[];
  isAsThen: boolean;
  budget: TypedBudget;
}

/** Return the body of a fork without confirmations, or what is wrong: keys of edits, and the budget. */
export function forkBody({ place, version, fields, edits, isAsThen, budget }: TypedFork): { body: ForkBody } | { wrong: readonly string[]; budget: string | null } {
  const wrong: string[] = [];
  const sent: NonNullable<ForkBody["edits"]> = {};
  for (const edit of edits.filter(isSent)) {
    const result = valueOf(edit, fields);
    if ("error" in result) wrong.push(editKey(edit));
    else addEdit(sent, edit, result.value);
  }
  const limits = budgetOf(budget);
  if (wrong.length || "error" in limits) return { wrong, budget: "error" in limits ? limits.error : null };
  return {
    body: {
      from: [place],
      ...(version === "same" ? {} : { version }),
      ...(Object.keys(sent).length ? { edits: sent } : {}),
      ...(isAsThen ? { answers: "as_then" } : {}),
      ...(limits.budget ? { budget: limits.budget } : {}),
    },
  };
}

function addEdit(sent: NonNullable<ForkBody["edits"]>, edit: Edit, value: unknown): void {
  switch (edit.kind) {
    case "query":
      sent.query = isObject(value) ? { ...value } : String(value);
      return;
    case "inputs":
      sent.inputs = isObject(value) ? { ...value } : {};
      return;
    case "variable":
      sent.variables = { ...sent.variables, [edit.name]: value };
      return;
    case "output":
      sent.outputs = { ...sent.outputs, [edit.owner]: { ...sent.outputs?.[edit.owner], [edit.name]: value } };
      return;
    case "param":
      sent.params = { ...sent.params, [edit.owner]: { ...sent.params?.[edit.owner], [edit.name]: value } };
  }
}
