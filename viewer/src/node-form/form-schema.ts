/** The fields of a form, from a component's JSON Schema with its annotations. */
import type { Schema } from "../catalogue/catalogue";
import { isMembers } from "../catalogue/parse-catalogue";

export type Widget =
  | "arguments" | "choice" | "code" | "collected_outputs" | "declared_outputs" | "form_fields" | "hidden" | "json" | "knowledge_base"
  | "mcp" | "memory" | "model" | "multiline" | "nodes" | "number" | "object" | "outputs" | "prompt" | "reference" | "rows" | "secret"
  | "structured_outputs" | "switch" | "text" | "texts" | "tools"; // prettier-ignore

export interface FieldSpec {
  name: string;
  title: string;
  description: string;
  widget: Widget;
  /** What counts if the form has no value; undefined without a default. */
  default: unknown;
  /** Values to choose from; others that a document has are kept. */
  options: readonly unknown[];
  /** Whether no choice is one, too. */
  isOptional: boolean;
  /** Fields of an entry of a list. */
  entries: readonly FieldSpec[];
  /** The widget of the entries of a list of texts. */
  entryWidget: "prompt" | "reference" | "text";
  /** What one entry is called. */
  entryTitle: string;
  /** What an entry is when it is added. */
  newEntry: unknown;
  /** The kinds of models that a field of a model offers; all without. */
  kinds: readonly string[];
  /** Whether documents write it as a text, rather than as JSON. */
  isText: boolean;
  section: string;
  when: Conditions;
  /** Another widget, beside certain values of other fields. */
  widgets: readonly { widget: Widget; when: Conditions }[];
}

/** Values of other fields, by name. */
type Conditions = Readonly<Record<string, readonly unknown[]>>;
type Members = Readonly<Record<string, unknown>>;

const WIDGETS: Readonly<Record<string, Widget>> = {
  arguments: "arguments", assignments: "rows", categories: "rows", choice: "choice", code: "code", collected_outputs: "collected_outputs",
  conditions: "rows", declared_outputs: "declared_outputs", form_fields: "form_fields", hidden: "hidden", json: "json", json_schema: "json",
  knowledge_base: "knowledge_base", mcp: "mcp", memory: "memory", model: "model", multiline: "multiline", nodes: "nodes", number: "number", object: "object",
  outputs: "outputs", prompt: "prompt", prompts: "rows", reference: "reference", references: "texts", rows: "rows", secret: "secret",
  structured_outputs: "structured_outputs", text: "text", texts: "texts", tools: "tools",
}; // prettier-ignore

/** Return the fields that a schema describes, in their order. Hidden ones are among them. */
export function fieldsOf(schema: Schema): FieldSpec[] {
  const properties = isMembers(schema.properties) ? schema.properties : {};
  return Object.entries(properties)
    .map(([name, property], place) => ({ field: fieldOf(name, isMembers(property) ? property : {}), order: orderOf(property, place) }))
    .sort((a, b) => a.order - b.order)
    .map(({ field }) => field);
}

export function fieldOf(name: string, schema: Schema): FieldSpec {
  const items = isMembers(schema.items) ? schema.items : schema["x-easel-widget"] === "object" ? schema : {};
  const values = Array.isArray(schema.enum) ? (schema.enum as unknown[]) : Array.isArray(schema.examples) ? (schema.examples as unknown[]) : [];
  const entries = fieldsOf(items);
  return {
    name,
    title: textOf(schema.title) || name,
    description: textOf(schema.description),
    widget: widgetOf(schema, entries),
    default: schema.default,
    options: values.filter((each) => each !== "" && each !== null),
    isOptional: values.includes("") || values.includes(null) || !Array.isArray(schema.enum),
    entries,
    entryWidget: entryWidgetOf(textOf(schema["x-easel-widget"])),
    entryTitle: textOf(schema["x-easel-entry"]) || textOf(schema.title) || name,
    newEntry: schema["x-easel-new"] ?? (entries.length > 0 ? {} : ""),
    kinds: Array.isArray(schema["x-easel-kinds"]) ? schema["x-easel-kinds"].filter((each): each is string => typeof each === "string") : [],
    isText: schema.type === "string" || (Array.isArray(schema.type) && schema.type[0] === "string"),
    section: textOf(schema["x-easel-section"]),
    when: conditionsOf(schema["x-easel-when"]),
    widgets: Object.entries(isMembers(schema["x-easel-widgets"]) ? schema["x-easel-widgets"] : {}).flatMap(([name, when]) => {
      const widget = WIDGETS[name];
      return widget ? [{ widget, when: conditionsOf(when) }] : [];
    }),
  };
}

function entryWidgetOf(widget: string): FieldSpec["entryWidget"] {
  return widget.startsWith("prompt") ? "prompt" : widget === "references" ? "reference" : "text";
}

/** Return the fields that are shown with these values, each with its widget beside them. */
export function shownFields(fields: readonly FieldSpec[], values: Members): FieldSpec[] {
  const holds = (when: Conditions): boolean =>
    Object.entries(when).every(([name, wanted]) => wanted.includes(values[name] ?? fields.find((each) => each.name === name)?.default));
  return fields
    .filter((field) => holds(field.when))
    .map((field) => ({ ...field, widget: field.widgets.find((each) => holds(each.when))?.widget ?? field.widget }))
    .filter((field) => field.widget !== "hidden");
}

/** Return the keys of a form that no field describes. */
export function otherKeys(fields: readonly FieldSpec[], form: Members): string[] {
  const known = new Set(fields.map((each) => each.name));
  return Object.keys(form).filter((key) => !known.has(key));
}

function widgetOf(schema: Schema, entries: readonly FieldSpec[]): Widget {
  const types = Array.isArray(schema.type) ? (schema.type as unknown[]) : [schema.type];
  const named = WIDGETS[textOf(schema["x-easel-widget"])];
  if (named === "rows" && entries.length === 0) return schema["x-easel-widget"] === "prompts" ? "texts" : "json";
  if (named === "prompt" && types.includes("array") && !types.includes("object")) return "texts"; // one text or several
  if (named === "prompt" && !types.includes("string")) return "json";
  if (named) return named;
  if (Array.isArray(schema.enum)) return "choice";
  if (types.includes("array")) return entries.length > 0 ? "rows" : types.length <= 3 && !types.includes("object") ? "texts" : "json";
  if (types.includes("boolean") && types.length <= 2) return "switch";
  if (types.includes("number") || types.includes("integer")) return types.includes("object") ? "json" : "number";
  return types.includes("object") ? "json" : "text";
}

function conditionsOf(value: unknown): Record<string, readonly unknown[]> {
  const conditions = isMembers(value) ? Object.entries(value) : [];
  return Object.fromEntries(conditions.map(([name, wanted]): [string, unknown[]] => [name, Array.isArray(wanted) ? wanted : [wanted]]));
}

function orderOf(schema: unknown, place: number): number {
  const order = isMembers(schema) ? schema["x-easel-order"] : undefined;
  return typeof order === "number" ? order : place;
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}
