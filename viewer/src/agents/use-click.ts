/** One click that changes something: it is sent once, with a key of its own, and says what went wrong. */
import { useRef, useState } from "react";

import { ApiError, newIdempotencyKey } from "../api/request";

export interface Click {
  /** Run the action with the click's key; a click that was not answered keeps its key for the next try. */
  send: (action: (idempotencyKey: string) => Promise<void>) => Promise<void>;
  isBusy: boolean;
  error: Error | null;
  clear: () => void;
}

export function useClick(): Click {
  const key = useRef(newIdempotencyKey());
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const send = async (action: (idempotencyKey: string) => Promise<void>): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      await action(key.current);
      key.current = newIdempotencyKey();
    } catch (failure) {
      if (failure instanceof ApiError && failure.status >= 400 && failure.status < 500) key.current = newIdempotencyKey();
      setError(failure instanceof Error ? failure : new Error(String(failure)));
    } finally {
      setBusy(false);
    }
  };
  return { send, isBusy, error, clear: () => setError(null) };
}
