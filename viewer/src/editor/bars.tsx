/** What stands above the drawing: unsaved changes of an earlier visit, and what was done or refused last. */
import type { ReactNode } from "react";

import { texts } from "../texts";
import { moment } from "../ui/format";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { useDraft, useEditor } from "./editor-context";

const t = texts.editor;

export function LeftBar(): ReactNode {
  const { session, isReadOnly } = useEditor();
  const left = useDraft((state) => state.left);
  if (!left || isReadOnly) return null;
  return (
    <section role="alert" data-testid="left-changes" data-tone="accent" className="flex shrink-0 flex-wrap items-center gap-2 border-b border-line bg-tone-soft px-3 py-2">
      <span className="min-w-0 flex-1 basis-60">
        {t.left.text(moment(left.at))} {left.lacksSecrets ? t.left.secrets : null}
      </span>
      <Button onClick={() => void session.takeLeft()}>{t.left.take}</Button>
      <Button onClick={() => void session.dropLeft()}>{t.left.drop}</Button>
    </section>
  );
}

/** What was done or refused last, in a sentence. */
export function Notice({ notice, onClose }: { notice: { text: string; isProblem: boolean } | null; onClose: () => void }): ReactNode {
  if (!notice) return null;
  return (
    <div
      data-testid="notice"
      data-tone={notice.isProblem ? "red" : "accent"}
      className="absolute top-2 left-1/2 z-20 flex w-max max-w-[calc(100%-1rem)] -translate-x-1/2 items-start gap-2 rounded border border-tone bg-tone-soft px-3 py-1.5 shadow"
    >
      <span className="min-w-0 break-words">{visibleName(notice.text, 500)}</span>
      <button type="button" aria-label={texts.close} onClick={onClose} className="size-6 shrink-0">
        ✕
      </button>
    </div>
  );
}
