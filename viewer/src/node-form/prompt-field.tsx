/** Texts with references: prompts with chips, and fields that are a reference as a whole. */
import { EditorView, ViewPlugin } from "@codemirror/view";
import type { Extension } from "@codemirror/state";
import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";

import { texts } from "../texts";
import CodeEditor from "../ui/code-editor";
import { visibleName } from "../ui/visible-text";
import { fieldLook, FRAME } from "./editor-look";
import { CONTROL, defaultText, FieldFrame } from "./field-frame";
import { pathText } from "./form-paths";
import { useField, useForm } from "./form-context";
import type { FieldProps } from "./plain-fields";
import { chips, completion, insert, referencesChanged } from "./reference-chips";
import { ReferencePicker, useReferenceName } from "./reference-picker";

const t = texts.nodeForm;

/** A text with references in braces. */
export function PromptField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const { references } = useForm();
  const text = typeof state.value === "string" ? state.value : typeof state.value === "number" ? String(state.value) : "";
  const shown = state.value === undefined && typeof field.default === "string" ? field.default : text;
  const isLong = path.length === 1 || typeof path.at(-1) === "number" || field.name === "content"; // else it is one of many in a row
  const { extensions, view } = useReferenceEditor(state.id, pathText(path), isLong ? 3 : 1);
  useEffect(() => {
    view.current?.dispatch({ effects: referencesChanged.of(null) });
  }, [references, view]);
  return (
    <FieldFrame
      field={field}
      state={state}
      isGroup
      actions={
        <ReferencePicker
          title={field.title}
          onClosed={() => view.current?.focus()}
          onPick={(reference) => {
            const editor = view.current;
            if (editor) insert(editor, reference, editor.state.selection.main.from, editor.state.selection.main.to);
          }}
        />
      }
    >
      <CodeEditor
        value={shown}
        onChange={state.set}
        label={visibleName(field.title, 80)}
        isReadOnly={state.isReadOnly}
        isInvalid={state.isInvalid}
        describedBy={`${state.id}-help`}
        extensions={extensions}
        className={FRAME}
      />
    </FieldFrame>
  );
}

/** The extensions of a field with references, and its view; the references are those of the latest drawing of the page. */
function useReferenceEditor(id: string, fieldPath: string, lines: number): { extensions: Extension; view: { current: EditorView | null } } {
  const { references } = useForm();
  const latest = useRef(references);
  const view = useRef<EditorView | null>(null);
  useEffect(() => {
    latest.current = references;
  });
  const extensions = useMemo(() => {
    const source = { references: () => latest.current, unknown: (reference: string) => visibleName(reference, 60) };
    const holder = ViewPlugin.define((made) => {
      view.current = made;
      return {};
    });
    const names = EditorView.contentAttributes.of({ id, "data-testid": "field", "data-field": fieldPath });
    return [holder, names, fieldLook(lines), chips(source), completion(source)];
  }, [id, fieldPath, lines]);
  return { extensions, view };
}

/** A field that is a reference as a whole, which RAGFlow writes without braces. `{` opens the list. */
export function ReferenceField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const nameOf = useReferenceName();
  const input = useRef<HTMLInputElement>(null);
  const opener = useRef<HTMLSpanElement>(null);
  const [isFocused, setFocused] = useState(false);
  const text = typeof state.value === "string" ? state.value : "";
  const name = text.trim() === "" ? null : nameOf(text);
  return (
    <FieldFrame
      field={field}
      state={state}
      actions={
        <span ref={opener} className="contents">
          <ReferencePicker title={field.title} onClosed={() => input.current?.focus()} onPick={(reference) => state.set(reference)} />
        </span>
      }
    >
      <input
        ref={input}
        {...state.attributes}
        type="text"
        className={`${CONTROL} font-mono text-xs`}
        value={text}
        placeholder={state.value === undefined ? defaultText(field.default) : ""}
        readOnly={state.isReadOnly}
        spellCheck={false}
        onFocus={() => setFocused(true)}
        onBlur={() => setFocused(false)}
        onKeyDown={(event) => {
          if (event.key !== "{" || state.isReadOnly) return;
          event.preventDefault();
          opener.current?.querySelector("button")?.click();
        }}
        onChange={(event) => state.set(event.target.value)}
      />
      {name === null && (text.trim() === "" || isFocused) ? null : (
        <p className="truncate text-xs">
          {name === null ? <span className="text-ink-2">{t.notReadable}</span> : <span className="rounded border border-accent bg-accent-soft px-1 text-accent">{name}</span>}
        </p>
      )}
    </FieldFrame>
  );
}
