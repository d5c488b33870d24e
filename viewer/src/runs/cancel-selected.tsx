/** What can be done with the selected runs. */
import { useRef, useState, type ReactNode } from "react";

import { newIdempotencyKey } from "../api/request";
import { cancelRuns } from "../api/runs";
import { CompareSelected } from "../compare/compare-selected";
import { RerunSelected } from "../rerun/rerun-selected";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { ConfirmDialog } from "../ui/dialog";
import { Button } from "../ui/parts";

const t = texts.runs;

interface Props {
  selected: ReadonlySet<string>;
  onClear: () => void;
  onDone: (message: string) => void;
}

export function SelectionBar({ selected, onClear, onDone }: Props): ReactNode {
  const announce = useAnnounce();
  const [isAsking, setAsking] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const key = useRef("");

  const ask = (): void => {
    key.current = newIdempotencyKey();
    setError(null);
    setAsking(true);
  };
  const cancel = async (): Promise<void> => {
    setBusy(true);
    try {
      const done = await cancelRuns([...selected], key.current);
      const message = t.cancelled(done.cancelled.length, done.over.length);
      setAsking(false);
      announce(message);
      onDone(message);
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    } finally {
      setBusy(false);
    }
  };
  return (
    <div role="group" aria-label={t.selected(selected.size)} className="flex shrink-0 flex-wrap items-center gap-2 border-b border-line bg-accent-soft px-3 py-1.5">
      <span className="font-medium">{t.selected(selected.size)}</span>
      <Button onClick={ask}>{t.cancel}</Button>
      <RerunSelected selected={selected} onDone={onDone} />
      <CompareSelected selected={selected} />
      <Button onClick={onClear}>{t.unselect}</Button>
      {isAsking ? (
        <ConfirmDialog
          title={t.confirm(selected.size)}
          text={t.confirmText}
          confirm={t.cancel}
          refuse={texts.live.keep}
          isBusy={isBusy}
          error={error}
          onConfirm={() => void cancel()}
          onClose={() => setAsking(false)}
        />
      ) : null}
    </div>
  );
}
