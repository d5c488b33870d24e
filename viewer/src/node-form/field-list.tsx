/** The fields of a form, or of an entry of a list, in their order; those of a section fold. */
import { useState, type ReactNode } from "react";

import { texts } from "../texts";
import { ChoicesField, ModelField, ServersField } from "./choice-pickers";
import { isMembers } from "../catalogue/parse-catalogue";
import { FieldFrame } from "./field-frame";
import { useField, useForm } from "./form-context";
import { pathText, valueAt, type Path } from "./form-paths";
import { shownFields, type FieldSpec } from "./form-schema";
import { CodeField, JsonField } from "./json-field";
import { ArgumentsField, CollectedOutputsField, DeclaredOutputsField, FormFieldsField } from "./mapping-fields";
import { NodesField } from "./nodes-field";
import { OutputsField } from "./outputs-field";
import { ChoiceField, NumberField, SecretField, SwitchField, TextField, type FieldProps } from "./plain-fields";
import { PromptField, ReferenceField } from "./prompt-field";
import { RowsField, TextsField } from "./rows-field";
import { ToolsField } from "./tools-field";

const SECTIONS = ["model", "advanced", "failure"];

interface Props {
  fields: readonly FieldSpec[];
  path: Path;
  values: Readonly<Record<string, unknown>>;
}

export function FieldList({ fields, path, values }: Props): ReactNode {
  const shown = shownFields(fields, values);
  const sections = [...new Set(["", ...SECTIONS, ...shown.map((each) => each.section)])].filter((section) => shown.some((each) => each.section === section));
  return (
    <div className="flex min-w-0 flex-col gap-3">
      {sections.map((section) => {
        const own = shown.filter((each) => each.section === section).map((each) => <FieldControl key={each.name} field={each} path={[...path, each.name]} />);
        return section === "" ? own : <Section key={section} name={section} fields={shown} path={path} controls={own} />;
      })}
    </div>
  );
}

interface SectionProps {
  name: string;
  fields: readonly FieldSpec[];
  path: Path;
  controls: ReactNode;
}

/** Fields that are seldom changed; open where there is a finding, or a field to focus. */
function Section({ name, fields, path, controls }: SectionProps): ReactNode {
  const { findingsAt, focused } = useForm();
  const [isOpen, setOpen] = useState(false);
  const own = fields.filter((each) => each.section === name).map((each) => pathText([...path, each.name]));
  const isNeeded = own.some((field) => findingsAt(field).length > 0 || focused === field);
  const title = (texts.nodeForm.sections as Readonly<Record<string, string>>)[name] ?? name;
  return (
    <details open={isOpen || isNeeded} onToggle={(event) => setOpen(event.currentTarget.open)} className="rounded border border-line">
      <summary className="min-h-7 cursor-pointer rounded bg-panel px-2 py-1 font-medium">{title}</summary>
      <div className="flex flex-col gap-3 p-2">{controls}</div>
    </details>
  );
}

/** An object with fields of its own. */
function ObjectField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const shown: unknown = state.value ?? field.default;
  return (
    <FieldFrame field={{ ...field, default: undefined }} state={state} isGroup>
      <fieldset {...state.attributes} aria-labelledby={`${state.id}-label`} className="min-w-0 rounded border border-line p-2">
        <FieldList fields={field.entries} path={path} values={isMembers(shown) ? shown : {}} />
      </fieldset>
    </FieldFrame>
  );
}

/** The control of a field. A value of a shape that the control cannot show is JSON. */
export function FieldControl({ field, path }: FieldProps): ReactNode {
  const { form } = useForm();
  const value = valueAt(form, path);
  const isPlain = value === undefined || value === null || typeof value !== "object";
  const isList = isPlain || Array.isArray(value);
  const isText = isPlain && typeof value !== "boolean";
  switch (field.widget) {
    case "hidden":
      return null;
    case "switch":
      return typeof value === "string" || !isPlain ? <JsonField field={field} path={path} /> : <SwitchField field={field} path={path} />;
    case "number":
      return isText ? <NumberField field={field} path={path} /> : <JsonField field={field} path={path} />;
    case "choice":
      return <ChoiceField field={field} path={path} />;
    case "secret":
      return isText ? <SecretField field={field} path={path} /> : <JsonField field={field} path={path} />;
    case "prompt":
      return isText ? <PromptField field={field} path={path} /> : <JsonField field={field} path={path} />;
    case "reference":
      return isText ? <ReferenceField field={field} path={path} /> : <JsonField field={field} path={path} />;
    case "text":
    case "multiline":
      return isText ? <TextField field={field} path={path} /> : <JsonField field={field} path={path} />;
    case "model":
      return isText ? <ModelField field={field} path={path} /> : <JsonField field={field} path={path} />;
    case "knowledge_base":
    case "memory":
      return isList ? <ChoicesField field={field} path={path} /> : <JsonField field={field} path={path} />;
    case "mcp":
      return isList ? <ServersField field={field} path={path} /> : <JsonField field={field} path={path} />;
    case "tools":
      return isList ? <ToolsField field={field} path={path} /> : <JsonField field={field} path={path} />;
    case "nodes":
      return isList ? <NodesField field={field} path={path} /> : <JsonField field={field} path={path} />;
    case "rows":
      return <RowsField field={field} path={path} />;
    case "texts":
      return isList ? <TextsField field={field} path={path} /> : <JsonField field={field} path={path} />;
    case "object":
      return isMembers(value) || value === undefined || value === null ? <ObjectField field={field} path={path} /> : <JsonField field={field} path={path} />;
    case "form_fields":
      return Array.isArray(value) ? <JsonField field={field} path={path} /> : <FormFieldsField field={field} path={path} />;
    case "arguments":
      return Array.isArray(value) ? <JsonField field={field} path={path} /> : <ArgumentsField field={field} path={path} />;
    case "collected_outputs":
      return <CollectedOutputsField field={field} path={path} />;
    case "declared_outputs":
      return <DeclaredOutputsField field={field} path={path} />;
    case "outputs":
    case "structured_outputs":
      return <OutputsField field={field} path={path} />;
    case "code":
      return isText ? <CodeField field={field} path={path} /> : <JsonField field={field} path={path} />;
    case "json":
      return <JsonField field={field} path={path} />;
  }
}
