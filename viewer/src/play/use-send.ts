/** Sending something once: the same request gets the same key until an answer has arrived. */
import { useCallback, useRef, useState } from "react";

import { ApiError, newIdempotencyKey } from "../api/request";

export interface Sender {
  /** Call with a key that belongs to `what`; return its result, null if it has failed. */
  send: <T>(what: unknown, call: (idempotencyKey: string) => Promise<T>) => Promise<T | null>;
  isBusy: boolean;
  failure: ApiError | null;
  forgetFailure: () => void;
}

export function useSend(): Sender {
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState<ApiError | null>(null);
  const last = useRef<{ what: string; key: string } | null>(null);
  const isSending = useRef(false);
  const send = useCallback(async <T>(what: unknown, call: (key: string) => Promise<T>): Promise<T | null> => {
    if (isSending.current) return null;
    isSending.current = true;
    setBusy(true);
    setFailure(null);
    const written = JSON.stringify(what);
    if (last.current?.what !== written) last.current = { what: written, key: newIdempotencyKey() };
    try {
      const result = await call(last.current.key);
      last.current = null;
      return result;
    } catch (error) {
      const known = error instanceof ApiError ? error : new ApiError(0, "failed", error instanceof Error ? error.message : String(error));
      if (known.status >= 400 && known.status < 500 && known.status !== 401) last.current = null; // refused: the next try is another request
      setFailure(known);
      return null;
    } finally {
      isSending.current = false;
      setBusy(false);
    }
  }, []);
  return { send, isBusy, failure, forgetFailure: useCallback(() => setFailure(null), []) };
}

/** Return whether nobody knows if the request had its effect. */
export function isUncertain(failure: ApiError): boolean {
  return failure.status === 0 || failure.status >= 500;
}
