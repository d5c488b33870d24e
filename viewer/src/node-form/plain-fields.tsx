/** Controls for single values: texts, numbers, switches, choices and secrets. */
import { useState, type ReactNode } from "react";

import { texts } from "../texts";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { CONTROL, defaultText, FieldFrame, FieldHelp } from "./field-frame";
import { useField } from "./form-context";
import type { Path } from "./form-paths";
import type { FieldSpec } from "./form-schema";

const t = texts.nodeForm;
const MASK = /^••••/; // what the API sends in place of a secret

export interface FieldProps {
  field: FieldSpec;
  path: Path;
}

export function TextField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const isMultiline = field.widget === "multiline";
  const { value, isReadOnly } = state;
  const text = typeof value === "string" || typeof value === "number" ? String(value) : "";
  const shared = {
    ...state.attributes,
    className: `${CONTROL} max-h-80 [field-sizing:content]`,
    value: text,
    readOnly: isReadOnly,
    placeholder: value === undefined || value === null ? defaultText(field.default) : "",
  };
  const list = field.options.length > 0 ? `${state.id}-options` : undefined;
  return (
    <FieldFrame field={field} state={state}>
      {isMultiline ? (
        <textarea {...shared} rows={2} onChange={(event) => state.set(event.target.value)} />
      ) : (
        <input {...shared} type="text" list={list} onChange={(event) => state.set(event.target.value)} />
      )}
      {list === undefined ? null : (
        <datalist id={list}>
          {field.options.map((option) => (
            <option key={String(option)} value={String(option)} />
          ))}
        </datalist>
      )}
      {isTextual(value) ? null : <p className="text-xs text-ink-2">{t.otherShape}</p>}
    </FieldFrame>
  );
}

function isTextual(value: unknown): boolean {
  return value === undefined || value === null || typeof value === "string" || typeof value === "number";
}

/** A number; what is not one stays in the field and is not stored. */
export function NumberField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const stored = typeof state.value === "number" || typeof state.value === "string" ? String(state.value) : "";
  const [draft, setDraft] = useState<string | null>(null);
  const isNumber = draft === null || draft.trim() === "" || Number.isFinite(Number(draft));
  const change = (text: string): void => {
    const number = Number(text);
    setDraft(text);
    if (text.trim() === "") state.set(undefined);
    else if (Number.isFinite(number)) state.set(number);
  };
  return (
    <FieldFrame field={field} state={state}>
      <input
        {...state.attributes}
        aria-invalid={state.isInvalid || !isNumber}
        type="text"
        inputMode="decimal"
        className={`${CONTROL} max-w-40`}
        value={draft ?? stored}
        placeholder={defaultText(field.default)}
        readOnly={state.isReadOnly}
        onChange={(event) => change(event.target.value)}
        onBlur={() => (isNumber ? setDraft(null) : undefined)}
      />
      {isNumber ? null : (
        <p role="alert" className="text-xs text-red">
          {t.notANumber}
        </p>
      )}
    </FieldFrame>
  );
}

export function SwitchField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const isOn = typeof state.value === "boolean" ? state.value : field.default === true;
  return (
    <div className="min-w-0">
      <label className="flex min-h-6 items-center gap-2 font-medium">
        <input
          {...state.attributes}
          type="checkbox"
          className="size-4.5 shrink-0 accent-(--accent)"
          checked={isOn}
          disabled={state.isReadOnly}
          onChange={(event) => state.set(event.target.checked)}
        />
        {visibleName(field.title, 80)}
      </label>
      <FieldHelp field={field} state={state} />
    </div>
  );
}

export function ChoiceField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const { value } = state;
  const isUnset = value === undefined || value === null || value === "";
  const chosen = isUnset ? -1 : field.options.indexOf(value);
  const isOther = !isUnset && chosen < 0;
  const byDefault = defaultText(field.default);
  const choose = (key: string): void => {
    if (key === "other") return;
    const place = Number(key);
    state.set(place < 0 ? unsetValue(value) : field.options[place]);
  };
  return (
    <FieldFrame field={field} state={state}>
      <select {...state.attributes} className={CONTROL} disabled={state.isReadOnly} value={isOther ? "other" : String(chosen)} onChange={(event) => choose(event.target.value)}>
        {field.isOptional || isUnset ? <option value="-1">{value === undefined && byDefault ? t.defaultChoice(byDefault) : t.none}</option> : null}
        {field.options.map((option, place) => (
          <option key={String(option)} value={String(place)}>
            {visibleName(String(option), 80)}
          </option>
        ))}
        {isOther ? <option value="other">{t.otherChoice(visibleName(typeof value === "string" ? value : JSON.stringify(value), 60))}</option> : null}
      </select>
    </FieldFrame>
  );
}

/** What a choice becomes that is taken back: as it was written when it was empty before, else no value at all. */
function unsetValue(value: unknown): unknown {
  return typeof value === "string" ? "" : undefined;
}

/** A secret never reaches the page: the field is empty, and only what is typed into it is sent. */
export function SecretField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const { value, isReadOnly } = state;
  const isStored = typeof value === "string" && MASK.test(value);
  const typed = isStored || (typeof value !== "string" && typeof value !== "number") ? "" : String(value);
  return (
    <FieldFrame
      field={{ ...field, default: undefined }}
      state={state}
      actions={
        isReadOnly || (!isStored && typed === "") ? null : (
          <Button aria-label={t.removeSecret(field.title)} onClick={() => state.set("")}>
            {t.remove}
          </Button>
        )
      }
    >
      <input
        {...state.attributes}
        type="password"
        autoComplete="new-password"
        className={CONTROL}
        value={typed}
        placeholder={isStored ? t.secretStored : ""}
        readOnly={isReadOnly}
        onChange={(event) => state.set(event.target.value)}
      />
    </FieldFrame>
  );
}
