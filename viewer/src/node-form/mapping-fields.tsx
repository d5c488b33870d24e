/** Objects whose keys an author names: fields of a form, arguments of a program, outputs. */
import { useState, type ReactNode } from "react";

import type { Schema } from "../catalogue/catalogue";
import { isMembers } from "../catalogue/parse-catalogue";
import { texts } from "../texts";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { FieldControl, FieldList } from "./field-list";
import { CONTROL, FieldFrame } from "./field-frame";
import { FindingTexts, useField } from "./form-context";
import type { Path } from "./form-paths";
import { fieldOf, fieldsOf, type FieldSpec } from "./form-schema";
import { EntryActions, moved } from "./list-actions";
import type { FieldProps } from "./plain-fields";

const t = texts.nodeForm;
const OUTPUT_TYPES = ["string", "number", "boolean", "object", "Array<string>", "Array<number>", "Array<object>"];
const CODE_TYPES = ["String", "Number", "Boolean", "Object", "Array<String>", "Array<Number>", "Array<Object>"];
const FIELD_TYPES = ["line", "paragraph", "options", "file", "integer", "boolean", "object"];

const FORM_FIELD = fieldsOf({
  properties: {
    name: { type: "string", title: t.label },
    type: { type: "string", title: t.type, examples: FIELD_TYPES, "x-easel-widget": "choice" },
    options: { type: ["array", "string"], title: t.options, "x-easel-entry": t.option, "x-easel-widget": "texts", "x-easel-when": { type: ["options"] } },
    optional: { type: "boolean", title: t.mayBeEmpty },
  },
});
const ARGUMENT = fieldOf("", { type: "string", title: t.value, "x-easel-widget": "reference" });

const outputFields = (types: readonly string[], more: Schema = {}): FieldSpec[] =>
  fieldsOf({ properties: { type: { type: "string", title: t.type, examples: types, "x-easel-widget": "choice" }, ...more } });
const DECLARED_OUTPUT = outputFields(CODE_TYPES);
const COLLECTED_OUTPUT = outputFields(OUTPUT_TYPES, { ref: { type: "string", title: t.collected, "x-easel-widget": "reference" } });

export function FormFieldsField({ field, path }: FieldProps): ReactNode {
  const added = (name: string): unknown => ({ key: name, name, type: "line", optional: false, options: [], value: "" });
  return <Mapping field={field} path={path} entry={t.formField} added={added} keyOfEntry="key" render={(at, value) => <FieldList fields={FORM_FIELD} path={at} values={value} />} />;
}

/** Arguments of a program: references without braces. */
export function ArgumentsField({ field, path }: FieldProps): ReactNode {
  return <Mapping field={field} path={path} entry={t.argument} added={() => ""} render={(at) => <FieldControl field={ARGUMENT} path={at} />} />;
}

export function DeclaredOutputsField({ field, path }: FieldProps): ReactNode {
  const added = (): unknown => ({ type: "String", value: "" });
  return <Mapping field={field} path={path} entry={t.output} added={added} render={(at, value) => <FieldList fields={DECLARED_OUTPUT} path={at} values={value} />} />;
}

/** What an Iteration collects of each item. */
export function CollectedOutputsField({ field, path }: FieldProps): ReactNode {
  const added = (): unknown => ({ type: "Array<string>", ref: "" });
  return <Mapping field={field} path={path} entry={t.output} added={added} render={(at, value) => <FieldList fields={COLLECTED_OUTPUT} path={at} values={value} />} />;
}

interface MappingProps extends FieldProps {
  /** What one entry is called. */
  entry: string;
  added: (name: string) => unknown;
  /** A member of each entry that repeats its key, where documents have it. */
  keyOfEntry?: string;
  render: (path: Path, value: Readonly<Record<string, unknown>>) => ReactNode;
}

function Mapping({ field, path, entry, added, keyOfEntry, render }: MappingProps): ReactNode {
  const state = useField(path);
  const shown: unknown = state.value ?? field.default;
  const members = isMembers(shown) ? Object.entries(shown) : [];
  const keys = members.map(([key]) => key);
  const rename = (place: number, to: string): void => {
    const renamed = members.map(([key, value], at): [string, unknown] => {
      if (at !== place) return [key, value];
      return [to, keyOfEntry !== undefined && isMembers(value) && Object.hasOwn(value, keyOfEntry) ? { ...value, [keyOfEntry]: to } : value];
    });
    state.set(Object.fromEntries(renamed));
  };
  const add = (): void => {
    const name = freeName(entry, keys);
    state.set({ ...(isMembers(shown) ? shown : {}), [name]: added(name) });
  };
  return (
    <FieldFrame field={{ ...field, default: undefined }} state={state} isGroup>
      <div role="group" aria-labelledby={`${state.id}-label`} tabIndex={-1} {...state.attributes} className="flex flex-col gap-2">
        {members.map(([key, value], place) => (
          <Entry
            key={place}
            title={`${entry} ${place + 1}`}
            name={key}
            keys={keys}
            path={[...path, key]}
            place={place}
            onRename={(to) => rename(place, to)}
            onMove={(to) => state.set(Object.fromEntries(moved(members, place, to)))}
            onRemove={() => state.set(Object.fromEntries(members.filter((_, at) => at !== place)))}
          >
            {render([...path, key], isMembers(value) ? value : {})}
          </Entry>
        ))}
        {state.isReadOnly ? null : (
          <Button className="self-start" onClick={add}>
            {t.addEntry(entry)}
          </Button>
        )}
      </div>
    </FieldFrame>
  );
}

function freeName(entry: string, keys: readonly string[]): string {
  const base = entry.toLowerCase().replace(/[^a-z]+/g, "_");
  for (let number = keys.length + 1; ; number++) if (!keys.includes(`${base}_${number}`)) return `${base}_${number}`;
}

interface EntryProps {
  title: string;
  name: string;
  keys: readonly string[];
  path: Path;
  place: number;
  onRename: (to: string) => void;
  onMove: (to: number) => void;
  onRemove: () => void;
  children: ReactNode;
}

/** An entry with its key. The key changes when the field is left, so that references do not follow every letter. */
function Entry({ title, name, keys, path, place, onRename, onMove, onRemove, children }: EntryProps): ReactNode {
  const state = useField(path);
  const [draft, setDraft] = useState<string | null>(null);
  const wanted = draft?.trim() ?? name;
  const isRefused = wanted !== name && (wanted === "" || keys.includes(wanted));
  const commit = (): void => {
    if (draft !== null && !isRefused && wanted !== name) onRename(wanted);
    setDraft(null);
  };
  return (
    <fieldset className="min-w-0 rounded border border-line p-2 pt-1">
      <div className="flex min-h-6 items-center gap-1">
        <legend className="float-left min-w-0 flex-1 truncate text-xs font-medium text-ink-2">{title}</legend>
        {state.isReadOnly ? null : <EntryActions name={visibleName(name, 40)} place={place} count={keys.length} onMove={onMove} onRemove={onRemove} />}
      </div>
      <FindingTexts findings={state.findings} />
      <label htmlFor={`${state.id}-key`} className="block font-medium">
        {t.key}
      </label>
      <input
        id={`${state.id}-key`}
        type="text"
        className={`${CONTROL} mb-2 font-mono text-xs`}
        aria-invalid={isRefused}
        value={draft ?? name}
        readOnly={state.isReadOnly}
        onChange={(event) => setDraft(event.target.value)}
        onBlur={commit}
        onKeyDown={(event) => (event.key === "Enter" ? commit() : undefined)}
      />
      {isRefused ? (
        <p role="alert" className="text-xs text-red">
          {t.keyRefused}
        </p>
      ) : null}
      {children}
    </fieldset>
  );
}
