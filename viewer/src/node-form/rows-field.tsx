/** Lists: of objects with fields of their own, and of texts. */
import type { ReactNode } from "react";

import { isMembers } from "../catalogue/parse-catalogue";
import { texts } from "../texts";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { FieldControl, FieldList } from "./field-list";
import { FieldFrame } from "./field-frame";
import { FindingTexts, useField } from "./form-context";
import type { Path } from "./form-paths";
import { fieldOf, type FieldSpec } from "./form-schema";
import { EntryActions, moved, without } from "./list-actions";
import type { FieldProps } from "./plain-fields";

const t = texts.nodeForm;
const HANDLE = "uuid"; // of a category: edges begin at it

/** A list whose entries are objects; a document may have a text in place of one. */
export function RowsField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const shown: unknown = state.value ?? field.default;
  const rows: readonly unknown[] = Array.isArray(shown) ? shown : isEmpty(shown) ? [] : [shown];
  return (
    <FieldFrame field={{ ...field, default: undefined }} state={state} isGroup>
      <div role="group" aria-labelledby={`${state.id}-label`} tabIndex={-1} {...state.attributes} className="flex flex-col gap-2 rounded aria-invalid:border-l-2 aria-invalid:border-red aria-invalid:pl-1">
        {rows.map((row, place) => (
          <Row
            key={place}
            field={field}
            path={Array.isArray(shown) ? [...path, place] : path}
            row={row}
            place={place}
            count={rows.length}
            onMove={(to) => state.set(moved(rows, place, to))}
            onRemove={() => state.set(without(rows, place))}
          />
        ))}
        {state.isReadOnly ? null : (
          <Button className="self-start" onClick={() => state.set([...rows, newEntry(field)])}>
            {t.addEntry(field.entryTitle)}
          </Button>
        )}
      </div>
    </FieldFrame>
  );
}

function isEmpty(value: unknown): boolean {
  return value === undefined || value === null || value === "";
}

/** Return a new entry; a category gets a handle of its own. */
function newEntry(field: FieldSpec): unknown {
  const made = structuredClone(field.newEntry);
  if (!isMembers(made) || !field.entries.some((each) => each.name === HANDLE)) return made;
  return { ...made, [HANDLE]: Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("") };
}

interface RowProps {
  field: FieldSpec;
  path: Path;
  row: unknown;
  place: number;
  count: number;
  onMove: (to: number) => void;
  onRemove: () => void;
}

function Row({ field, path, row, place, count, onMove, onRemove }: RowProps): ReactNode {
  const state = useField(path);
  const name = `${visibleName(field.entryTitle, 40)} ${place + 1}`;
  const only = field.entries.length === 1 ? field.entries[0] : undefined;
  if (only && (typeof row === "string" || (isMembers(row) && Object.keys(row).every((key) => key === only.name))))
    return (
      <div className="min-w-0">
        <div className="flex min-w-0 items-end gap-1">
          <div className="min-w-0 flex-1">
            <FieldControl field={{ ...only, title: name }} path={isMembers(row) ? [...path, only.name] : path} />
          </div>
          {state.isReadOnly ? null : <EntryActions name={name} place={place} count={count} onMove={onMove} onRemove={onRemove} />}
        </div>
        <FindingTexts findings={state.findings} />
      </div>
    );
  return (
    <fieldset className="min-w-0 rounded border border-line p-2 pt-1">
      <div className="flex min-h-6 items-center gap-1">
        <legend className="float-left min-w-0 flex-1 truncate text-xs font-medium text-ink-2">{name}</legend>
        {state.isReadOnly ? null : <EntryActions name={name} place={place} count={count} onMove={onMove} onRemove={onRemove} />}
      </div>
      <FindingTexts findings={state.findings} />
      {isMembers(row) ? <FieldList fields={field.entries} path={path} values={row} /> : <PlainEntry field={field} path={path} name={name} row={row} />}
    </fieldset>
  );
}

/** An entry that is not an object: as its first field, if it is a text. */
function PlainEntry({ field, path, name, row }: { field: FieldSpec; path: Path; name: string; row: unknown }): ReactNode {
  const first = field.entries[0];
  const schema = typeof row === "string" ? { type: "string", title: name, "x-easel-widget": first?.widget ?? "text" } : { title: name, type: ["object", "array"] };
  return <FieldControl field={fieldOf(first?.name ?? "", schema)} path={path} />;
}

/** A list of texts; a document may have one text instead of the list. */
export function TextsField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const shown: unknown = state.value ?? field.default;
  const isOne = typeof shown === "string" && shown !== "";
  const rows: readonly unknown[] = isOne ? [shown] : Array.isArray(shown) ? shown : [];
  const entry = (place: number): FieldSpec => ({
    ...field,
    title: rows.length > 1 ? `${field.entryTitle} ${place + 1}` : field.entryTitle,
    description: "",
    default: rows[place],
    widget: field.entryWidget === "text" ? "multiline" : field.entryWidget,
  });
  return (
    <FieldFrame field={{ ...field, default: undefined }} state={state} isGroup>
      <div role="group" aria-labelledby={`${state.id}-label`} tabIndex={-1} {...state.attributes} className="flex flex-col gap-1">
        {rows.map((_, place) => (
          <div key={place} className="flex min-w-0 items-start gap-1">
            <div className="min-w-0 flex-1">
              <TextEntry field={entry(place)} path={isOne ? path : [...path, place]} />
            </div>
            {state.isReadOnly ? null : (
              <EntryActions
                name={`${field.entryTitle} ${place + 1}`}
                place={place}
                count={rows.length}
                onMove={(to) => state.set(moved(rows, place, to))}
                onRemove={() => state.set(without(rows, place))}
              />
            )}
          </div>
        ))}
        {state.isReadOnly ? null : (
          <Button className="self-start" onClick={() => state.set([...rows, ""])}>
            {t.addEntry(field.entryTitle)}
          </Button>
        )}
      </div>
    </FieldFrame>
  );
}

function TextEntry({ field, path }: FieldProps): ReactNode {
  if (field.widget !== "multiline") return <FieldControl field={field} path={path} />;
  return <PlainText field={field} path={path} />;
}

/** A short text that may have line ends, such as a delimiter. */
function PlainText({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const shown = state.value ?? field.default;
  return (
    <textarea
      {...state.attributes}
      aria-label={field.title}
      rows={1}
      className="min-h-7 w-full resize-y rounded border border-line-strong bg-surface px-1.5 py-0.5 font-mono text-xs aria-invalid:border-red read-only:bg-panel"
      value={typeof shown === "string" ? shown : JSON.stringify(shown)}
      readOnly={state.isReadOnly || (shown !== undefined && typeof shown !== "string")}
      onChange={(event) => state.set(event.target.value)}
    />
  );
}
