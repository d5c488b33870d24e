/** The theme: that of the system, or one that the reader has chosen. start.js sets it before anything is drawn. */
import { useEffect, useSyncExternalStore } from "react";

export type ThemeChoice = "system" | "light" | "dark";

const KEY = "easel.theme";
const CHANGED = "easel:theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

function readChoice(): ThemeChoice {
  try {
    const stored = localStorage.getItem(KEY);
    return stored === "light" || stored === "dark" ? stored : "system";
  } catch {
    return "system";
  }
}

function apply(): void {
  const choice = readChoice();
  const isDark = choice === "dark" || (choice === "system" && dark.matches);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
}

function subscribe(listener: () => void): () => void {
  const onChange = (): void => {
    apply();
    listener();
  };
  dark.addEventListener("change", onChange);
  addEventListener(CHANGED, onChange);
  return () => {
    dark.removeEventListener("change", onChange);
    removeEventListener(CHANGED, onChange);
  };
}

/** Return the choice, and a function that goes to the next one. */
export function useTheme(): [ThemeChoice, () => void] {
  const choice = useSyncExternalStore(subscribe, readChoice);
  const next = { system: "light", light: "dark", dark: "system" }[choice];
  const goOn = (): void => {
    try {
      localStorage.setItem(KEY, next);
    } catch {
      return; // without storage the theme is that of the system
    }
    dispatchEvent(new Event(CHANGED));
  };
  return [choice, goOn];
}

/** Keep the theme that the address of a page names; without one, the reader's own. */
export function useGivenTheme(given: "light" | "dark" | undefined): void {
  useEffect(() => {
    if (given === undefined) return subscribe(() => undefined);
    document.documentElement.dataset.theme = given;
    return apply;
  }, [given]);
}
