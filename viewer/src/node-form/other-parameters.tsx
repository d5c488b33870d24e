/** Keys of a form that its schema does not describe, as JSON. */
import { useState, type ReactNode } from "react";

import { texts } from "../texts";
import CodeEditor from "../ui/code-editor";
import { isMembers } from "../catalogue/parse-catalogue";
import { fieldLook, FRAME } from "./editor-look";
import { useForm } from "./form-context";
import { isSame } from "./form-paths";
import { otherKeys, type FieldSpec } from "./form-schema";
import { JsonError, useJsonText } from "./json-field";

const t = texts.nodeForm;
const LOOK = fieldLook(3);

/** `fields`: those that the form shows elsewhere. Only keys that have changed are sent. */
export function OtherParameters({ fields, isWhole }: { fields: readonly FieldSpec[]; isWhole: boolean }): ReactNode {
  const { form, change, isReadOnly } = useForm();
  const keys = otherKeys(fields, form);
  const [isOpen, setOpen] = useState(isWhole);
  const [refused, setRefused] = useState<string | null>(null);
  const others = Object.fromEntries(keys.map((key) => [key, form[key]]));
  const set = (value: unknown): void => {
    const next = value === undefined ? {} : value;
    const taken = isMembers(next) ? fields.find((each) => Object.hasOwn(next, each.name)) : undefined;
    setRefused(!isMembers(next) ? t.notAnObject : taken ? t.hasField(taken.name, taken.title) : null);
    if (!isMembers(next) || taken) return;
    for (const key of keys) if (!Object.hasOwn(next, key)) change([key], undefined);
    for (const [key, member] of Object.entries(next)) if (!Object.hasOwn(form, key) || !isSame(form[key], member)) change([key], member);
  };
  const { text, error, change: type } = useJsonText(others, set);
  if (isReadOnly && keys.length === 0) return null;
  const title = isWhole ? t.parameters : t.otherParameters;
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)} className="rounded border border-line">
      <summary className="min-h-7 cursor-pointer rounded bg-panel px-2 py-1 font-medium">
        {title}
        {keys.length > 0 ? <span className="font-normal text-ink-2"> ({keys.length})</span> : null}
      </summary>
      <div className="flex flex-col gap-1 p-2">
        <p id="other-parameters-help" className="text-xs text-ink-2">
          {isWhole ? t.wholeForm : t.otherParametersHelp}
        </p>
        <CodeEditor
          value={text}
          onChange={(typed) => {
            setRefused(null);
            type(typed);
          }}
          label={title}
          language="json"
          isReadOnly={isReadOnly}
          isInvalid={error !== null || refused !== null}
          describedBy="other-parameters-help"
          extensions={LOOK}
          className={FRAME}
        />
        <JsonError error={error ?? refused} />
      </div>
    </details>
  );
}
