/** A field for JSON, code or long texts (CodeMirror). Load it lazily: `lazy(() => import("../ui/code-editor"))`. */
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { bracketMatching } from "@codemirror/language";
import { Annotation, EditorState, type Extension } from "@codemirror/state";
import { EditorView, keymap } from "@codemirror/view";
import { useEffect, useRef, type ReactNode } from "react";

import { codeTheme } from "./code-theme";

interface Props {
  value: string;
  onChange: (value: string) => void;
  /** The accessible name. */
  label: string;
  language?: "json" | "text";
  isReadOnly?: boolean;
  isInvalid?: boolean;
  /** The id of the element that says what is wrong. */
  describedBy?: string;
  /** Further extensions, for example completions. They count when the field is made. */
  extensions?: Extension;
  className?: string;
}

const FROM_OUTSIDE = Annotation.define<boolean>();

export default function CodeEditor(props: Props): ReactNode {
  const { value, label, language = "text", isReadOnly = false, isInvalid = false, describedBy, className = "" } = props;
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const latest = useRef(props);
  useEffect(() => {
    latest.current = props;
  });

  useEffect(() => {
    if (!place.current) return;
    const { value: text, extensions = [] } = latest.current;
    const made = new EditorView({
      parent: place.current,
      state: EditorState.create({
        doc: text,
        extensions: [
          extensions,
          history(),
          bracketMatching(),
          keymap.of([...defaultKeymap, ...historyKeymap]), // Tab leaves the field
          language === "json" ? json() : [],
          EditorState.readOnly.of(isReadOnly),
          EditorView.contentAttributes.of({ "aria-label": label }),
          EditorView.updateListener.of((update) => {
            const isOurs = update.transactions.some((each) => each.annotation(FROM_OUTSIDE));
            if (update.docChanged && !isOurs) latest.current.onChange(update.state.doc.toString());
          }),
          codeTheme,
        ],
      }),
    });
    view.current = made;
    return () => {
      made.destroy();
      view.current = null;
    };
  }, [label, language, isReadOnly]);

  useEffect(() => {
    const content = view.current?.contentDOM;
    content?.setAttribute("aria-invalid", String(isInvalid));
    if (describedBy === undefined) content?.removeAttribute("aria-describedby");
    else content?.setAttribute("aria-describedby", describedBy);
  }, [isInvalid, describedBy]);

  useEffect(() => {
    const known = view.current?.state.doc.toString();
    if (known === undefined || known === value) return;
    view.current?.dispatch({ changes: { from: 0, to: known.length, insert: value }, annotations: FROM_OUTSIDE.of(true) });
  }, [value]);

  return <div ref={place} className={`overflow-auto rounded border ${isInvalid ? "border-red" : "border-line-strong"} ${className}`} />;
}
