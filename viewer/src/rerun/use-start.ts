/** Starting a copy of a run: one click makes one run, and then the page shows it. */
import { useNavigate } from "@tanstack/react-router";
import { useCallback, useRef, useState } from "react";

import type { Started } from "../api/copies";
import { ApiError, newIdempotencyKey } from "../api/request";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";

export interface Starter {
  /** Start a run; the same body again, while no answer has come, has its effect once. */
  start: <Body>(body: Body, send: (body: Body, idempotencyKey: string) => Promise<Started>) => Promise<void>;
  isBusy: boolean;
  error: string | null;
}

export function useStart(): Starter {
  const navigate = useNavigate();
  const announce = useAnnounce();
  const sent = useRef<{ written: string; key: string } | null>(null);
  const isSending = useRef(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);

  const start = useCallback<Starter["start"]>(
    async (body, send) => {
      if (isSending.current) return;
      isSending.current = true;
      setBusy(true);
      setError(null);
      const written = JSON.stringify(body);
      if (sent.current?.written !== written) sent.current = { written, key: newIdempotencyKey() };
      try {
        const { run_id: runId } = await send(body, sent.current.key);
        sent.current = null;
        announce(texts.copies.started);
        await navigate({ to: "/runs/$runId", params: { runId }, search: {} });
      } catch (failure) {
        if (failure instanceof ApiError && failure.status >= 400 && failure.status < 500) sent.current = null;
        setError(failure instanceof Error ? failure.message : String(failure));
      } finally {
        isSending.current = false;
        setBusy(false);
      }
    },
    [announce, navigate],
  );
  return { start, isBusy, error };
}
