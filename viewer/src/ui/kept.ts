/** What a person has typed and not sent yet: it outlives its page in this tab, for example while signing in again. */
import { useCallback, useRef, useState } from "react";

const kept = new Map<string, unknown>();
let keptFor: string | null = null;

/** Say who is signed in. What another reader has typed is forgotten. */
export function keepFor(reader: string): void {
  if (keptFor !== null && keptFor !== reader) kept.clear();
  keptFor = reader;
}

export function keep(key: string, value: unknown): void {
  kept.set(key, value);
}

export function forgetKept(key?: string): void {
  if (key === undefined) kept.clear();
  else kept.delete(key);
}

/** A state that is still there when the page is shown again, until it is forgotten. */
export function useKept<T>(key: string, initial: T): [T, (next: T | ((known: T) => T)) => void] {
  const first = useRef(initial);
  const [held, setHeld] = useState<{ key: string; value: T }>(() => ({ key, value: valueOf(key, initial) }));
  const value = held.key === key ? held.value : valueOf(key, initial);
  const set = useCallback(
    (next: T | ((known: T) => T)): void => {
      const changed = next instanceof Function ? next(valueOf(key, first.current)) : next;
      keep(key, changed);
      setHeld({ key, value: changed });
    },
    [key],
  );
  return [value, set];
}

/** Return what is kept under a key, else the initial value. */
export function valueOf<T>(key: string, initial: T): T {
  return kept.has(key) ? (kept.get(key) as T) : initial;
}
