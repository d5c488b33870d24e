/** How CodeMirror looks here: the colours of the page, so that it follows the theme. */
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import type { Extension } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const look = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--surface)", fontSize: "12px" },
  "&.cm-focused": { outline: "2px solid var(--focus)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--font-mono)", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--ink-2)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft) !important" },
  ".cm-tooltip": { backgroundColor: "var(--surface)", color: "var(--ink)", border: "1px solid var(--line-strong)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent-soft)", color: "var(--ink)" },
  ".cm-panels": { backgroundColor: "var(--panel)", color: "var(--ink)" },
  ".cm-deletedChunk, .cm-changedLine": { backgroundColor: "transparent" },
  "&.cm-merge-a .cm-changedLine": { backgroundColor: "var(--red-soft)" },
  "&.cm-merge-b .cm-changedLine": { backgroundColor: "var(--green-soft)" },
  "&.cm-merge-a .cm-changedText": { background: "none", borderBottom: "2px solid var(--red)" },
  "&.cm-merge-b .cm-changedText": { background: "none", borderBottom: "2px solid var(--green)" },
  ".cm-collapsedLines": { background: "var(--panel)", color: "var(--ink-2)" },
});

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.keyword], color: "var(--accent)" },
  { tag: tags.string, color: "var(--green)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--violet)" },
  { tag: tags.invalid, color: "var(--red)" },
]);

export const codeTheme: Extension = [look, syntaxHighlighting(colours), EditorView.lineWrapping];
