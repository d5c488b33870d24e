/** Colours, density and motion as attributes of the document. start.js sets them before anything is drawn. */
import { useEffect } from "react";

import { changeSettings, readSettings, subscribe, useSettings, type Settings } from "./settings";

export type ThemeChoice = Settings["theme"];

const NEXT: Readonly<Record<ThemeChoice, ThemeChoice>> = { system: "light", light: "dark", dark: "contrast", contrast: "system" };
const dark = matchMedia("(prefers-color-scheme: dark)");
const moreContrast = matchMedia("(prefers-contrast: more)");

let given: "light" | "dark" | undefined; // by the address of the page

function apply(): void {
  const { theme, density, motion } = readSettings();
  const { dataset } = document.documentElement;
  const followsSystem = theme === "system" || theme === "contrast";
  dataset.theme = given ?? (theme === "dark" || (followsSystem && dark.matches) ? "dark" : "light");
  dataset.contrast = theme === "contrast" || (theme === "system" && moreContrast.matches) ? "more" : "normal";
  dataset.density = density;
  dataset.motion = motion;
}

/** Keep the document as the settings and the system say, on every page. */
export function keepAppearance(): void {
  apply();
  subscribe(apply);
  for (const query of [dark, moreContrast]) query.addEventListener("change", apply);
}

/** Return the theme, and a function that goes to the next one. */
export function useTheme(): [ThemeChoice, () => void] {
  const { theme } = useSettings();
  return [theme, () => changeSettings({ theme: NEXT[theme] })];
}

/** Show the theme that the address of a page names; without one, the reader's own. */
export function useGivenTheme(named: "light" | "dark" | undefined): void {
  useEffect(() => {
    given = named;
    apply();
    return () => {
      given = undefined;
      apply();
    };
  }, [named]);
}
