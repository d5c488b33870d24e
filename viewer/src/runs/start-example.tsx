/** A button that makes an agent from a template and starts a run of it, for a list without runs. */
import { useNavigate } from "@tanstack/react-router";
import { useRef, useState, type ReactNode } from "react";

import { startExample, type ExampleKeys } from "../api/example";
import { newIdempotencyKey } from "../api/request";
import { texts } from "../texts";
import { Button } from "../ui/parts";

const t = texts.runs;

export function StartExample({ mayChange }: { mayChange: boolean }): ReactNode {
  const navigate = useNavigate();
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const keys = useRef<ExampleKeys | null>(null);

  const start = async (): Promise<void> => {
    keys.current ??= { agent: newIdempotencyKey(), run: newIdempotencyKey() }; // the same until a reply has arrived
    setBusy(true);
    setError(null);
    try {
      const runId = await startExample(keys.current);
      keys.current = null;
      await navigate({ to: "/runs/$runId", params: { runId } });
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
      setBusy(false);
    }
  };
  return (
    <div className="mb-5">
      <Button className="px-3! py-1.5! font-medium" disabled={isBusy || !mayChange} onClick={() => void start()}>
        <span aria-hidden="true">▸</span> {t.startExample}
      </Button>
      <p className="mt-1 text-ink-2">{mayChange ? t.startExampleHint : t.readOnly}</p>
      {error === null ? null : (
        <p role="alert" data-tone="red" className="mt-1 text-tone">
          {error}
        </p>
      )}
    </div>
  );
}
