/** Fields for the query and the inputs of a copy: those of Begin's form, or JSON where there is none. */
import { lazy, Suspense, useId, type ReactNode } from "react";

import { uploadFile } from "../api/runs";
import { Control } from "../run/open-form";
import type { FieldErrors, Typed } from "../run/form-values";
import { isObject } from "../run-file/rows";
import type { FormField } from "../store/run";
import { texts } from "../texts";
import { visibleName } from "../ui/visible-text";
import { CONTROL } from "./budget-fields";

const CodeEditor = lazy(() => import("../ui/code-editor"));
const t = texts.copies;

export function QueryField({ value, isJson, error, onChange }: { value: string; isJson: boolean; error: string | undefined; onChange: (value: string) => void }): ReactNode {
  const id = useId();
  if (isJson) return <JsonField label={t.queryJson} value={value} error={error} onChange={onChange} />;
  return (
    <div>
      <label htmlFor={id} className="block font-medium">
        {t.query}
      </label>
      <textarea id={id} rows={3} dir="auto" className={CONTROL} value={value} onChange={(event) => onChange(event.target.value)} />
    </div>
  );
}

export function JsonField({ label, value, error, onChange }: { label: string; value: string; error: string | undefined; onChange: (value: string) => void }): ReactNode {
  const id = useId();
  return (
    <div>
      <p className="font-medium">{label}</p>
      <Suspense fallback={<p className="text-ink-2">{t.loading}</p>}>
        <CodeEditor label={label} language="json" value={value} isInvalid={error !== undefined} describedBy={`${id}-error`} className="max-h-60" onChange={onChange} />
      </Suspense>
      <p id={`${id}-error`} className="text-red">
        {error}
      </p>
    </div>
  );
}

interface InputFieldsProps {
  agentId: string;
  fields: readonly FormField[];
  typed: Typed;
  errors: FieldErrors;
  onChange: (typed: Typed) => void;
}

export function InputFields({ agentId, fields, typed, errors, onChange }: InputFieldsProps): ReactNode {
  const id = useId();
  const actions = { upload: (file: File) => uploadFile(agentId, file) };
  return (
    <fieldset className="flex flex-col gap-2">
      <legend className="mb-1 font-medium">{t.inputs}</legend>
      {fields.map((field, place) => (
        <div key={field.key}>
          <label htmlFor={`${id}-${place}`} className="block">
            <bdi>{visibleName(field.name, 120)}</bdi>
            {field.isOptional ? <span className="text-ink-2"> ({texts.forms.optional})</span> : <span aria-hidden="true"> *</span>}
          </label>
          {fileNames(typed[field.key]).map((name) => (
            <p key={name} className="text-ink-2">
              {t.keptFile(visibleName(name, 120))}
            </p>
          ))}
          <Control
            id={`${id}-${place}`}
            field={field}
            value={typed[field.key]}
            error={errors[field.key]}
            actions={actions}
            onChange={(value) => onChange({ ...typed, [field.key]: value })}
          />
          {errors[field.key] === undefined ? null : (
            <p id={`${id}-${place}-error`} className="text-red">
              {errors[field.key]}
            </p>
          )}
        </div>
      ))}
    </fieldset>
  );
}

/** Return the names of the files of a value. */
export function fileNames(value: unknown): string[] {
  const files = Array.isArray(value) ? value : [value];
  return files.flatMap((file) => (isObject(file) && typeof file.name === "string" ? [file.name] : []));
}
