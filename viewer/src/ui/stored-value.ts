/** A value in localStorage that several parts of the pages read: as JSON, checked when it is read. */
import { useSyncExternalStore } from "react";

const CHANGED = "easel:stored";

export interface StoredValue<T> {
  read: () => T;
  write: (value: T) => void;
}

/** `parse` returns a valid value for whatever is stored; undefined if nothing is. */
export function storedValue<T>(key: string, parse: (stored: unknown) => T): StoredValue<T> {
  let known: { text: string | null; value: T } | null = null;
  const read = (): T => {
    const text = readText(key);
    if (known?.text !== text) known = { text, value: parse(asJson(text)) };
    return known.value;
  };
  const write = (value: T): void => {
    try {
      localStorage.setItem(key, JSON.stringify(value));
    } catch {
      return; // without storage nothing is kept
    }
    dispatchEvent(new Event(CHANGED));
  };
  return { read, write };
}

export function useStored<T>(stored: StoredValue<T>): T {
  return useSyncExternalStore(subscribe, stored.read);
}

function subscribe(listener: () => void): () => void {
  for (const name of ["storage", CHANGED]) addEventListener(name, listener);
  return () => {
    for (const name of ["storage", CHANGED]) removeEventListener(name, listener);
  };
}

function readText(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function asJson(text: string | null): unknown {
  try {
    return text === null ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}
