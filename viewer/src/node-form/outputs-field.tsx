/** What a node sets, to read, and the schema of a structured answer. */
import type { ReactNode } from "react";

import { isMembers } from "../catalogue/parse-catalogue";
import { texts } from "../texts";
import { visibleName } from "../ui/visible-text";
import { FieldFrame } from "./field-frame";
import { useField, useForm } from "./form-context";
import { fieldOf } from "./form-schema";
import { JsonField } from "./json-field";
import type { FieldProps } from "./plain-fields";

const t = texts.nodeForm;
const SCHEMA_KEYS = ["structured", "structured_output"] as const; // old documents have the second

const SCHEMA = fieldOf("structured", { type: "object", title: t.answerSchema, description: t.answerSchemaHelp, "x-easel-widget": "json" });

export function OutputsField({ field, path }: FieldProps): ReactNode {
  const { component, form } = useForm();
  const state = useField(path);
  const declared = isMembers(state.value) ? state.value : {};
  const key = SCHEMA_KEYS.find((each) => Object.hasOwn(declared, each)) ?? "structured";
  const hasSchema = field.widget === "structured_outputs" && (form.showStructuredOutput === true || (isMembers(declared[key]) && Object.keys(declared[key]).length > 0));
  const types = new Map<string, string>();
  for (const { name, type } of component?.outputs ?? []) types.set(name, type);
  for (const [name, output] of Object.entries(declared)) if (isMembers(output) && typeof output.type === "string" && !SCHEMA_KEYS.some((each) => each === name)) types.set(name, output.type);
  return (
    <>
      {hasSchema ? <JsonField field={SCHEMA} path={[...path, key]} /> : null}
      <FieldFrame field={{ ...field, description: "", default: undefined }} state={state} isGroup>
        {types.size === 0 ? (
          <p className="text-ink-2">{t.noOutputs}</p>
        ) : (
          <ul aria-labelledby={`${state.id}-label`} className="flex flex-col">
            {[...types].map(([name, type]) => (
              <li key={name} className="[overflow-wrap:anywhere]">
                <span className="font-mono text-xs">{visibleName(name, 60)}</span> <span className="text-ink-2">{visibleName(type, 40)}</span>
              </li>
            ))}
          </ul>
        )}
      </FieldFrame>
    </>
  );
}
