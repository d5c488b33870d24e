/** Reruns the selected runs of the list, each once, after one question. */
import { useRef, useState, type ReactNode } from "react";

import { rerunRun } from "../api/copies";
import { newIdempotencyKey } from "../api/request";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { ConfirmDialog } from "../ui/dialog";
import { Button } from "../ui/parts";

const t = texts.rerun;
const MOST = 20;

interface Props {
  selected: ReadonlySet<string>;
  onDone: (message: string) => void;
}

export function RerunSelected({ selected, onDone }: Props): ReactNode {
  const announce = useAnnounce();
  const [isAsking, setAsking] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const keys = useRef<ReadonlyMap<string, string>>(new Map());

  const ask = (): void => {
    keys.current = new Map([...selected].map((id) => [id, newIdempotencyKey()]));
    setError(null);
    setAsking(true);
  };
  const rerun = async (): Promise<void> => {
    setBusy(true);
    const failures: string[] = [];
    for (const [id, key] of keys.current) {
      try {
        await rerunRun(id, {}, key);
      } catch (failure) {
        failures.push(failure instanceof Error ? failure.message : String(failure));
      }
    }
    setBusy(false);
    const started = keys.current.size - failures.length;
    if (!started) {
      setError(failures[0] ?? null);
      return;
    }
    const message = [t.startedMany(started, failures.length), failures[0]].filter(Boolean).join(" ");
    setAsking(false);
    announce(message);
    onDone(message);
  };
  const isTooMany = selected.size > MOST;
  return (
    <>
      <Button disabled={isTooMany} title={isTooMany ? t.tooMany(MOST) : undefined} onClick={ask}>
        {t.many}
      </Button>
      {isAsking ? (
        <ConfirmDialog
          title={t.confirmMany(selected.size)}
          text={t.confirmManyText}
          confirm={t.many}
          refuse={texts.copies.cancel}
          isBusy={isBusy}
          error={error}
          onConfirm={() => void rerun()}
          onClose={() => setAsking(false)}
        />
      ) : null}
    </>
  );
}
