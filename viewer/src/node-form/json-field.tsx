/** Values as JSON, and code. */
import type { Extension } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { useEffect, useMemo, useState, type ReactNode } from "react";

import { texts } from "../texts";
import CodeEditor from "../ui/code-editor";
import { asJson } from "../ui/values";
import { visibleName } from "../ui/visible-text";
import { fieldLook, FRAME } from "./editor-look";
import { FieldFrame } from "./field-frame";
import { useField, useForm } from "./form-context";
import { isSame, pathText, valueAt, type Path } from "./form-paths";
import type { FieldProps } from "./plain-fields";

const t = texts.nodeForm;

function useFieldNames(id: string, path: Path, lines = 3): Extension {
  const field = pathText(path);
  return useMemo(() => [EditorView.contentAttributes.of({ id, "data-testid": "field", "data-field": field }), fieldLook(lines)], [id, field, lines]);
}

/** A value as JSON; what is not JSON stays in the field and is not stored. An empty field has no value. */
export function JsonField(props: FieldProps): ReactNode {
  const { form } = useForm();
  const value = valueAt(form, props.path);
  const isText = typeof value === "string" || (value === undefined && props.field.isText);
  return isText ? <CodeField {...props} language="json" /> : <ValueField {...props} />;
}

function ValueField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const names = useFieldNames(state.id, path);
  const shown = state.value === undefined ? field.default : state.value;
  const { text, error, change } = useJsonText(shown, state.set);
  return (
    <FieldFrame field={field} state={state} isGroup>
      <CodeEditor
        value={text}
        onChange={change}
        label={visibleName(field.title, 80)}
        language="json"
        isReadOnly={state.isReadOnly}
        isInvalid={state.isInvalid || error !== null}
        describedBy={`${state.id}-help`}
        extensions={names}
        className={FRAME}
      />
      <JsonError error={error} />
    </FieldFrame>
  );
}

export function JsonError({ error }: { error: string | null }): ReactNode {
  if (error === null) return null;
  return (
    <p role="alert" className="text-xs text-red [overflow-wrap:anywhere]">
      {error}
    </p>
  );
}

/**
 * The text of a value that is edited as JSON. It stays as it is typed while it means the stored value, and is replaced
 * when the value changes elsewhere.
 */
export function useJsonText(value: unknown, set: (value: unknown) => void): { text: string; error: string | null; change: (text: string) => void } {
  const [typed, setTyped] = useState<{ text: string; value: unknown; error: string | null } | null>(null);
  useEffect(() => {
    if (typed !== null && typed.error === null && !isSame(typed.value, value)) setTyped(null);
  }, [typed, value]);
  const change = (text: string): void => {
    if (text.trim() === "") {
      setTyped({ text, value: undefined, error: null });
      set(undefined);
      return;
    }
    try {
      const parsed: unknown = JSON.parse(text);
      setTyped({ text, value: parsed, error: null });
      if (!isSame(parsed, value)) set(parsed);
    } catch (failure) {
      setTyped({ text, value, error: t.notJson(failure instanceof Error ? visibleName(failure.message, 200) : "") });
    }
  };
  const stored = value === undefined || value === "" ? "" : asJson(value);
  return { text: typed?.text ?? stored, error: typed?.error ?? null, change };
}

/** A program, or another text of a machine. */
export function CodeField({ field, path, language = "text" }: FieldProps & { language?: "json" | "text" }): ReactNode {
  const state = useField(path);
  const names = useFieldNames(state.id, path, language === "text" ? 6 : 3);
  const text = typeof state.value === "string" ? state.value : state.value === undefined && typeof field.default === "string" ? field.default : "";
  return (
    <FieldFrame field={{ ...field, default: undefined }} state={state} isGroup>
      <CodeEditor
        value={text}
        onChange={state.set}
        label={visibleName(field.title, 80)}
        language={language}
        isReadOnly={state.isReadOnly}
        isInvalid={state.isInvalid}
        describedBy={`${state.id}-help`}
        extensions={names}
        className={FRAME}
      />
    </FieldFrame>
  );
}
