/** What a fork changes: edits as they are typed, and the body that the API takes. */
import type { ForkBody } from "../api/copies";
import { isObject } from "../run-file/rows";
import type { TypedBudget } from "../rerun/budget";
import { budgetOf } from "../rerun/budget";
import { texts } from "../texts";

const t = texts.copies;

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
  return { kind, owner, name, title, isText, original: written, typed: written };
}

/** Whether an edit is sent. The value of a variable may differ from that of the version, so it always is. */
export function isSent(edit: Edit): boolean {
  return edit.kind === "variable" || edit.typed !== edit.original;
}

/** Return the value of an edit, or what is wrong with it. */
export function valueOf(edit: Edit): { value: unknown } | { error: string } {
  if (edit.isText) return { value: edit.typed };
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
  edits: readonly Edit[];
  isAsThen: boolean;
  budget: TypedBudget;
}

/** Return the body of a fork without confirmations, or what is wrong: keys of edits, and the budget. */
export function forkBody({ place, edits, isAsThen, budget }: TypedFork): { body: ForkBody } | { wrong: readonly string[]; budget: string | null } {
  const wrong: string[] = [];
  const sent: NonNullable<ForkBody["edits"]> = {};
  for (const edit of edits.filter(isSent)) {
    const result = valueOf(edit);
    if ("error" in result) wrong.push(editKey(edit));
    else addEdit(sent, edit, result.value);
  }
  const limits = budgetOf(budget);
  if (wrong.length || "error" in limits) return { wrong, budget: "error" in limits ? limits.error : null };
  return {
    body: {
      from: [place],
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
