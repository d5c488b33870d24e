/** Keys, copying and pasting of the whole editor. Text fields and dialogs keep theirs. */
import { useEffect, useRef } from "react";

import { copyNodes, parseCopied } from "./document/clipboard";
import { Refusal } from "./document/commands";
import { nodesOf } from "./document/document";
import type { Editor, Selection } from "./editor-context";
import { duplicate, paste, removeSelected } from "./selection-actions";
import { texts } from "../texts";
import { isTextField, useShortcut } from "../ui/shortcuts";

const t = texts.editor;
const k = t.keys;
const PAGE = "texts and dialogs";
const MODAL = "[role=dialog], [role=menu], [role=listbox]";

interface Options {
  editor: Editor;
  selection: Selection;
  onRun: () => void;
  onImport: (text: string) => void;
}

export function useEditorKeys(options: Options): void {
  useClipboard(options);
  const { editor, selection, onRun } = options;
  const { session, isReadOnly, select, notify, openDialog } = editor;
  const mayChange = !isReadOnly;
  const remove = (): void => {
    const nodes = nodesHere(selection);
    removeSelected(editor, { nodes, edges: nodes === selection.nodes ? selection.edges : [] });
  };
  const step = (isRedo: boolean): void => {
    const name = isRedo ? session.redo() : session.undo();
    if (name !== null) notify(isRedo ? t.redone(name) : t.undone(name));
  };
  const duplicateHere = (): void => {
    const nodes = nodesHere(selection);
    if (nodes.length) duplicate(editor, nodes);
  };
  const connectHere = (): void => {
    const [only, ...others] = nodesHere(selection);
    if (only !== undefined && !others.length) openDialog({ connect: only });
    else notify(k.connectOne, true);
  };

  useShortcut("Mod+Enter", k.run, onRun, true, "dialogs");
  useShortcut("Mod+z", t.undo, () => step(false), mayChange, PAGE);
  useShortcut("Mod+Shift+z", t.redo, () => step(true), mayChange, PAGE);
  useShortcut("Mod+y", t.redo, () => step(true), mayChange, PAGE);
  useShortcut("Mod+a", k.all, () => select({ nodes: [...nodesOf(session.getState().document ?? {}).keys()], edges: [] }), true, PAGE);
  useShortcut("Mod+d", k.duplicate, duplicateHere, mayChange, PAGE);
  useShortcut("Mod+c", k.copy, null);
  useShortcut("Mod+v", k.paste, null, mayChange);
  useShortcut("Delete", k.remove, remove, mayChange);
  useShortcut("Backspace", k.remove, remove, mayChange);
  useShortcut("c", k.connect, connectHere, mayChange);
  useShortcut("Escape", k.clear, () => select({ nodes: [], edges: [] }));
  // answered by the nodes themselves
  useShortcut("Enter", k.open, null);
  useShortcut("Tab", k.next, null);
  useShortcut("Shift+Space", k.add, null);
  useShortcut("← ↑ → ↓", k.move, null, mayChange);
}

/** Return the nodes that a key is about: the focused one if it is not selected, else the selection. */
function nodesHere({ nodes }: Selection): readonly string[] {
  const focused = document.activeElement?.closest<HTMLElement>("[data-canvas] [data-focus]")?.dataset.focus;
  return focused === undefined || nodes.includes(focused) ? nodes : [focused];
}

// -- copying and pasting -----------------------------------------------------------------------------------------------
function useClipboard(options: Options): void {
  const latest = useRef(options);
  useEffect(() => {
    latest.current = options;
  });
  useEffect(() => {
    const onCopy = (event: ClipboardEvent): void => copy(event, latest.current);
    const onPaste = (event: ClipboardEvent): void => pasteText(event, latest.current);
    addEventListener("copy", onCopy);
    addEventListener("paste", onPaste);
    return () => {
      removeEventListener("copy", onCopy);
      removeEventListener("paste", onPaste);
    };
  }, []);
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
  return event.defaultPrevented || (event.target instanceof Element && isTextField(event.target)) || document.querySelector(MODAL) !== null;
}
