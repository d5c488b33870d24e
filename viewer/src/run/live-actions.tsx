/** What a reader can do with a run of a server: cancel it, answer its form, raise its budget, repeat and compare it. */
import { useRef, useState, type ReactNode } from "react";

import { newIdempotencyKey } from "../api/request";
import { cancelRun } from "../api/runs";
import type { LiveMode } from "../live/live-run";
import { isOver } from "../store/run-status";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { ConfirmDialog } from "../ui/dialog";
import { Button } from "../ui/parts";
import { FocusOfContent } from "../ui/returned-focus";
import { useShortcut } from "../ui/shortcuts";
import { CopyActions } from "./copy-actions";
import { useRun, useRunContext } from "./use-run";

const t = texts.live;

export function LiveActions({ runId, mode, onDone }: { runId: string; mode: LiveMode; onDone: () => void }): ReactNode {
  const may = useRun((state) => state.server?.may ?? null);
  const status = useRun((state) => state.header?.status ?? "");
  const { actions } = useRunContext();
  const announce = useAnnounce();
  const [isAsking, setAsking] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const key = useRef("");
  const isAway = mode === "away";
  const canCancel = may?.cancel === true && !isOver(status) && !isAway;
  const ask = (): void => {
    key.current = newIdempotencyKey();
    setError(null);
    setAsking(true);
  };
  useShortcut("c", texts.runKeys.cancel, ask, canCancel);
  if (!may) return null;
  const copies = <CopyActions runId={runId} isAway={isAway} />;
  if (isOver(status)) return copies;

  const cancel = async (): Promise<void> => {
    setBusy(true);
    try {
      await cancelRun(runId, key.current);
      setAsking(false);
      announce(t.cancelled);
      onDone();
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <FocusOfContent />
      <span className="text-ink-2" data-tone={mode === "stream" ? "green" : "amber"}>
        <span aria-hidden="true" className="text-tone">
          ●
        </span>{" "}
        {mode === "polling" ? t.polling : mode === "stream" ? t.stream : null}
      </span>
      {may.answer && !isAway ? <Button onClick={() => actions?.showTalk()}>{t.answer}</Button> : null}
      {may.raise_budget && !isAway ? <Button onClick={() => actions?.showTalk()}>{t.raise}</Button> : null}
      <Button
        disabled={!canCancel}
        title={may.cancel ? undefined : t.notAllowed}
        onClick={ask}
      >
        {t.cancel}
      </Button>
      {copies}
      {isAsking ? (
        <ConfirmDialog
          title={t.cancelTitle}
          text={t.cancelText}
          confirm={t.confirm}
          refuse={t.keep}
          isBusy={isBusy}
          error={error}
          onConfirm={() => void cancel()}
          onClose={() => setAsking(false)}
        />
      ) : null}
    </>
  );
}
