/** How CodeMirror looks as a field of a form: the whole frame shows the focus, and a click anywhere in it writes. */
import type { Extension } from "@codemirror/state";
import { EditorView } from "@codemirror/view";

export const FRAME = "max-h-96 focus-within:outline-2 focus-within:outline-offset-1 focus-within:outline-(--focus)";

/** `lines`: how many lines of text the field is high at least. */
export function fieldLook(lines: number): Extension {
  return EditorView.theme({ "&.cm-focused": { outline: "none" }, ".cm-content": { minHeight: `${lines * 1.5 + 0.5}em` } });
}
