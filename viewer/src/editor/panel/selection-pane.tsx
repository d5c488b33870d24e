/** The right column with several nodes selected: what can be done with all of them. */
import type { ReactNode } from "react";

import { texts } from "../../texts";
import { Button } from "../../ui/parts";
import { ALIGNMENTS } from "../document/arrange";
import { useEditor } from "../editor-context";
import { align, duplicate, group, removeSelected, tidyDrawing } from "../selection-actions";

const t = texts.editor.drawing;

export function SelectionPane({ ids }: { ids: readonly string[] }): ReactNode {
  const editor = useEditor();
  if (editor.isReadOnly) return <p className="p-3">{texts.editor.panel.several(ids.length)}</p>;
  return (
    <div className="flex flex-col gap-3 p-3">
      <h2 className="font-semibold">{texts.editor.panel.several(ids.length)}</h2>
      <section aria-label={t.group} className="flex flex-wrap gap-1">
        {(["Iteration", "Loop"] as const).map((kind) => (
          <Button key={kind} onClick={() => group(editor, ids, kind)}>
            {t.groups[kind]}
          </Button>
        ))}
      </section>
      <section aria-label={t.align}>
        <h3 className="mb-1 font-medium">{t.align}</h3>
        <div className="flex flex-wrap gap-1">
          {ALIGNMENTS.map((each) => (
            <Button key={each} onClick={() => align(editor, ids, each)}>
              {t.alignments[each]}
            </Button>
          ))}
          <Button onClick={() => void tidyDrawing(editor, ids)}>{texts.editor.tidy}</Button>
        </div>
      </section>
      <div className="flex flex-wrap gap-1">
        <Button onClick={() => duplicate(editor, ids)}>{t.duplicate}</Button>
        <Button onClick={() => removeSelected(editor, { nodes: ids, edges: [] })}>{t.remove}</Button>
      </div>
    </div>
  );
}
