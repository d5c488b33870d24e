/** What stands above the drawing when the author has to decide: a draft that was changed elsewhere, and unsaved changes of an earlier visit. */
import { lazy, Suspense, useState, type ReactNode } from "react";

import { texts } from "../texts";
import { moment } from "../ui/format";
import { Button, Empty } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { ChangeList } from "./dialogs/change-list";
import { writeJson, withoutMember } from "./document/json";
import { useDocument, useDraft, useEditor } from "./editor-context";

const TextDiff = lazy(() => import("../ui/text-diff"));
const t = texts.editor;

export function ConflictBar(): ReactNode {
  const { session, notify } = useEditor();
  const conflict = useDraft((state) => state.conflict);
  const document = useDocument();
  const [isComparing, setComparing] = useState(false);
  if (!conflict) return null;
  const decide = (choice: "mine" | "theirs" | "merge"): void => {
    session.decide(choice).catch((error: unknown) => notify(error instanceof Error ? error.message : String(error), true));
  };
  return (
    <section role="alert" aria-label={t.conflict.title} data-testid="conflict" data-tone="amber" className="max-h-[60dvh] shrink-0 overflow-auto border-b border-line bg-tone-soft px-3 py-2">
      <h2 className="font-semibold text-tone">{t.conflict.title}</h2>
      <p>{t.conflict.text}</p>
      <div className="my-2 grid gap-3 sm:grid-cols-2">
        <section aria-label={t.conflict.yours}>
          <h3 className="font-medium">{t.conflict.yours}</h3>
          <ChangeList before={conflict.base} after={document} />
        </section>
        <section aria-label={t.conflict.others}>
          <h3 className="font-medium">{t.conflict.others}</h3>
          <ChangeList before={conflict.base} after={conflict.theirs} />
        </section>
      </div>
      <div className="flex flex-wrap gap-2">
        <Button title={t.conflict.mineHint} onClick={() => decide("mine")}>
          {t.conflict.mine}
        </Button>
        <Button title={t.conflict.theirsHint} onClick={() => decide("theirs")}>
          {t.conflict.theirs}
        </Button>
        <Button disabled={conflict.merged === null} title={conflict.merged === null ? t.conflict.notMerged : t.conflict.mergeHint} onClick={() => decide("merge")}>
          {t.conflict.merge}
        </Button>
        <Button aria-expanded={isComparing} onClick={() => setComparing(!isComparing)}>
          {t.conflict.compare}
        </Button>
      </div>
      {conflict.merged === null ? <p className="mt-1 text-ink-2">{t.conflict.notMerged}</p> : null}
      {isComparing ? (
        <Suspense fallback={<Empty>{texts.inspector.loading}</Empty>}>
          <TextDiff
            before={writeJson(withoutMember(conflict.theirs, "components"), 2)}
            after={writeJson(withoutMember(document, "components"), 2)}
            labels={[t.conflict.theirsLabel, t.conflict.mineLabel]}
            language="json"
          />
        </Suspense>
      ) : null}
    </section>
  );
}

export function LeftBar(): ReactNode {
  const { session, isReadOnly } = useEditor();
  const left = useDraft((state) => state.left);
  if (!left || isReadOnly) return null;
  return (
    <section role="alert" data-testid="left-changes" data-tone="accent" className="flex shrink-0 flex-wrap items-center gap-2 border-b border-line bg-tone-soft px-3 py-2">
      <span className="min-w-0 flex-1 basis-60">{t.left.text(moment(left.at))}</span>
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
