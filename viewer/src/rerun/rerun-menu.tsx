/** The Rerun button of a run: once more as it was, on another version, or with changes. */
import { lazy, Suspense, useState, type ReactNode } from "react";

import { rerunRun, type RerunBody } from "../api/copies";
import { texts } from "../texts";
import { ErrorBoundary } from "../ui/error-boundary";
import { Dialog } from "../ui/dialog";
import { Menu } from "../ui/menu";
import { Button } from "../ui/parts";
import { visibleText } from "../ui/visible-text";
import { useStart } from "./use-start";

const RerunDialog = lazy(() => import("./rerun-dialog"));
const t = texts.rerun;

interface Props {
  runId: string;
  /** Why nothing can be rerun; null if it can. */
  refusal: string | null;
}

export function RerunMenu({ runId, refusal }: Props): ReactNode {
  const { start, isBusy, error } = useStart();
  const [isOpen, setOpen] = useState(false);
  const [seenError, setSeenError] = useState<string | null>(null);
  const rerun = (body: RerunBody): void => {
    setSeenError(null);
    void start(body, (sent, key) => rerunRun(runId, sent, key));
  };
  const button = (
    <Button data-action="rerun" disabled={refusal !== null || isBusy} title={refusal ?? undefined}>
      {t.button} <span aria-hidden="true">▾</span>
    </Button>
  );
  const items = [
    { label: t.unchanged, hint: t.unchangedHint, onSelect: () => rerun({}) },
    { label: t.withChanges, onSelect: () => setOpen(true) },
    null,
    { label: t.onDraft, onSelect: () => rerun({ version: "draft" }) },
    { label: t.onPublished, onSelect: () => rerun({ version: "published" }) },
  ];
  return (
    <>
      {refusal === null ? <Menu items={items}>{button}</Menu> : button}
      {error !== null && error !== seenError ? (
        <Dialog title={t.failed} size="small" onClose={() => setSeenError(error)}>
          <p role="alert" className="mb-3 break-words">
            {visibleText(error)}
          </p>
          <Button className="self-end px-3! py-1!" onClick={() => setSeenError(error)}>
            {texts.close}
          </Button>
        </Dialog>
      ) : null}
      {isOpen ? (
        <ErrorBoundary>
          <Suspense fallback={null}>
            <RerunDialog runId={runId} onClose={() => setOpen(false)} />
          </Suspense>
        </ErrorBoundary>
      ) : null}
    </>
  );
}
