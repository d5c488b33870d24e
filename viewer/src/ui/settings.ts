/** What a reader has chosen for this browser, in localStorage: one key for each setting, none while it is the default. */
import { useSyncExternalStore } from "react";

const CHOICES = {
  /** `contrast` follows the system's light or dark, with the colours of high contrast. */
  theme: ["system", "light", "dark", "contrast"],
  density: ["normal", "compact"],
  zone: ["local", "utc"],
  times: ["relative", "absolute"],
  motion: ["system", "off"],
  rail: ["narrow", "pinned"],
} as const;

type Choices = typeof CHOICES;
export type Settings = { readonly [Name in keyof Choices]: Choices[Name][number] };

const CHANGED = "easel:settings";
const NAMES = Object.keys(CHOICES) as (keyof Choices)[];

export const DEFAULTS: Settings = { theme: "system", density: "normal", zone: "local", times: "relative", motion: "system", rail: "narrow" };

let known: Settings | null = null;

/** Return the settings; a stored value that this release does not know is the default. */
export function readSettings(): Settings {
  known ??= Object.fromEntries(NAMES.map((name) => [name, stored(name)])) as Settings;
  return known;
}

export function changeSettings(change: Partial<Settings>): void {
  const next = { ...readSettings(), ...change };
  try {
    for (const name of NAMES) {
      if (next[name] === DEFAULTS[name]) localStorage.removeItem(`easel.${name}`);
      else localStorage.setItem(`easel.${name}`, next[name]);
    }
  } catch {
    // without storage the choice lasts as long as the page
  }
  known = next;
  dispatchEvent(new Event(CHANGED));
}

/** Return the settings; the component is rendered again when they change, in another tab too. */
export function useSettings(): Settings {
  return useSyncExternalStore(subscribe, readSettings);
}

export function subscribe(listener: () => void): () => void {
  const onStorage = (): void => {
    known = null;
    listener();
  };
  addEventListener("storage", onStorage);
  addEventListener(CHANGED, listener);
  return () => {
    removeEventListener("storage", onStorage);
    removeEventListener(CHANGED, listener);
  };
}

function stored(name: keyof Choices): string {
  try {
    const value = localStorage.getItem(`easel.${name}`);
    return CHOICES[name].find((each) => each === value) ?? DEFAULTS[name];
  } catch {
    return DEFAULTS[name];
  }
}
