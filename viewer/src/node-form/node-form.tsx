/** The form of a node as JSON. */
import { lazy, Suspense, useState, type ReactNode } from "react";

import { isObject, readJson, writeJson, type JsonObject } from "../editor/document/json";
import { texts } from "../texts";
import { Empty } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import type { NodeFormProps } from "./contract";

const CodeEditor = lazy(() => import("../ui/code-editor"));
const t = texts.editor.panel;

export default function NodeForm({ form, findings, isReadOnly, onChange }: NodeFormProps): ReactNode {
  const written = writeJson(form as JsonObject, 2);
  const [typed, setTyped] = useState({ text: written, written });
  const text = typed.written === written ? typed.text : written;
  const isValid = parse(text) !== null;
  const onText = (next: string): void => {
    const value = parse(next);
    setTyped({ text: next, written: value === null ? written : writeJson(value, 2) });
    if (value !== null) onChange({ path: [], value });
  };
  return (
    <div data-testid="field" data-field="" aria-invalid={!isValid}>
      <Suspense fallback={<Empty>{texts.inspector.loading}</Empty>}>
        <CodeEditor value={text} onChange={onText} label={t.form} language="json" isReadOnly={isReadOnly} isInvalid={!isValid} className="max-h-[50dvh]" />
      </Suspense>
      {isValid ? null : <p className="mt-1 text-red">{t.invalidJson}</p>}
      <ul>
        {findings.map((finding, index) => (
          <li key={index} className="mt-1 text-red">
            {finding.field === null ? "" : `${visibleName(finding.field, 80)}: `}
            {visibleName(finding.message, 500)}
          </li>
        ))}
      </ul>
    </div>
  );
}

function parse(text: string): JsonObject | null {
  try {
    const value = readJson(text);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}
