/** Two texts side by side, with their differences by line and word (CodeMirror). Load it lazily. */
import { json } from "@codemirror/lang-json";
import { MergeView } from "@codemirror/merge";
import { EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { useEffect, useRef, type ReactNode } from "react";

import { codeTheme } from "./code-theme";

/** The lines that are left out: without the character that many fonts lack. */
const collapsed = EditorView.theme({ ".cm-collapsedLines:before": { content: '"⋯"' }, ".cm-collapsedLines:after": { content: '"⋯"' } });

interface Props {
  before: string;
  after: string;
  /** The accessible names of both sides. */
  labels: readonly [before: string, after: string];
  language?: "json" | "text";
}

export default function TextDiff({ before, after, labels: [beforeLabel, afterLabel], language = "text" }: Props): ReactNode {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!place.current) return;
    const side = (doc: string, label: string) => ({
      doc,
      extensions: [
        language === "json" ? json() : [],
        EditorState.readOnly.of(true),
        EditorView.contentAttributes.of({ "aria-label": label }),
        codeTheme,
        collapsed,
      ],
    });
    const view = new MergeView({
      parent: place.current,
      a: side(before, beforeLabel),
      b: side(after, afterLabel),
      collapseUnchanged: { margin: 3, minSize: 6 },
    });
    return () => view.destroy();
  }, [before, after, beforeLabel, afterLabel, language]);
  return <div ref={place} className="max-h-[60dvh] overflow-auto rounded border border-line" />;
}
