/** Keys, copying and pasting of the whole editor. Text fields and dialogs keep theirs. */
import { useEffect, useRef } from "react";

import { copyNodes, parseCopied } from "./document/clipboard";
import { Refusal } from "./document/commands";
import { nodesOf } from "./document/document";
import type { Editor, Selection } from "./editor-context";
import { duplicate, paste, removeSelected } from "./selection-actions";
import { texts } from "../texts";

const t = texts.editor;
const MODAL = "[role=dialog], [role=menu], [role=listbox]";

interface Options {
  editor: Editor;
  selection: Selection;
  onRun: () => void;
  onImport: (text: string) => void;
}

export function useEditorKeys(options: Options): void {
  const latest = useRef(options);
  useEffect(() => {
    latest.current = options;
  });
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => answerKey(event, latest.current);
    const onCopy = (event: ClipboardEvent): void => copy(event, latest.current);
    const onPaste = (event: ClipboardEvent): void => pasteText(event, latest.current);
    addEventListener("keydown", onKeyDown);
    addEventListener("copy", onCopy);
    addEventListener("paste", onPaste);
    return () => {
      removeEventListener("keydown", onKeyDown);
      removeEventListener("copy", onCopy);
      removeEventListener("paste", onPaste);
    };
  }, []);
}

function answerKey(event: KeyboardEvent, { editor, selection, onRun }: Options): void {
  if (event.defaultPrevented || event.isComposing || document.querySelector(MODAL)) return;
  const isCommand = event.ctrlKey || event.metaKey;
  const key = event.key.toLowerCase();
  if (isCommand && key === "enter") return answer(event, onRun);
  if (isTextField(event.target)) return;
  const { session, isReadOnly, select, notify } = editor;
  if (!isCommand) {
    if ((key === "delete" || key === "backspace") && !isReadOnly && (selection.nodes.length || selection.edges.length)) answer(event, () => removeSelected(editor, selection));
    return;
  }
  if (key === "a") return answer(event, () => select({ nodes: [...nodesOf(session.getState().document ?? {}).keys()], edges: [] }));
  if (isReadOnly) return;
  if (key === "z" || key === "y") {
    const isRedo = key === "y" || event.shiftKey;
    return answer(event, () => {
      const name = isRedo ? session.redo() : session.undo();
      if (name !== null) notify(isRedo ? t.redone(name) : t.undone(name));
    });
  }
  if (key === "d" && selection.nodes.length) answer(event, () => duplicate(editor, selection.nodes));
}

function answer(event: KeyboardEvent, action: () => void): void {
  event.preventDefault();
  action();
}

function copy(event: ClipboardEvent, { editor, selection }: Options): void {
  if (isElsewhere(event) || !selection.nodes.length || window.getSelection()?.isCollapsed === false) return;
  try {
    event.clipboardData?.setData("text/plain", copyNodes(editor.session.getState().document ?? {}, selection.nodes));
    event.preventDefault();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    editor.notify(error.message, true);
  }
}

/** Paste nodes, or import a whole document. Other texts have no place on a drawing. */
function pasteText(event: ClipboardEvent, { editor, onImport }: Options): void {
  if (isElsewhere(event) || editor.isReadOnly) return;
  const text = event.clipboardData?.getData("text/plain") ?? "";
  if (parseCopied(text)) paste(editor, text);
  else if (text.trimStart().startsWith("{")) onImport(text);
  else return;
  event.preventDefault();
}

function isElsewhere(event: Event): boolean {
  return event.defaultPrevented || isTextField(event.target) || document.querySelector(MODAL) !== null;
}

function isTextField(target: EventTarget | null): boolean {
  if (target instanceof HTMLInputElement) return !["checkbox", "radio", "button", "file", "submit", "reset"].includes(target.type);
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement || (target instanceof HTMLElement && target.isContentEditable);
}
