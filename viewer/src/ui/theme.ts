/** Colours, density and motion as attributes of the document. start.js sets them before anything is drawn. */
import { useEffect } from "react";

import { changeSettings, readSettings, subscribe, useSettings, type Settings } from "./settings";

export type ThemeChoice = Settings["theme"];

const NEXT: Readonly<Record<ThemeChoice, ThemeChoice>> = { system: "light", light: "dark", dark: "contrast", contrast: "system" };
const dark = matchMedia("(prefers-color-scheme: dark)");
const moreContrast = matchMedia("(prefers-contrast: more)");

function apply(): void {
  const { theme, density, motion } = readSettings();
  const { dataset } = document.documentElement;
  const followsSystem = theme === "system" || theme === "contrast";
  dataset.theme = theme === "dark" || (followsSystem && dark.matches) ? "dark" : "light";
  dataset.contrast = theme === "contrast" || (theme === "system" && moreContrast.matches) ? "more" : "normal";
  dataset.density = density;
  dataset.motion = motion;
}

/** Keep the document as the settings and the system say, until the returned function is called. */
function keepAppearance(): () => void {
  apply();
  const ends = [subscribe(apply)];
  for (const query of [dark, moreContrast]) {
    query.addEventListener("change", apply);
    ends.push(() => query.removeEventListener("change", apply));
  }
  return () => ends.forEach((end) => end());
}

export function useAppearance(): void {
  useEffect(keepAppearance, []);
}

/** Return the theme, and a function that goes to the next one. */
export function useTheme(): [ThemeChoice, () => void] {
  const { theme } = useSettings();
  return [theme, () => changeSettings({ theme: NEXT[theme] })];
}

/** Keep the theme that the address of a page names; without one, the reader's own. */
export function useGivenTheme(given: "light" | "dark" | undefined): void {
  useEffect(() => {
    const keep = (): void => {
      if (given !== undefined) document.documentElement.dataset.theme = given;
    };
    keep();
    const end = subscribe(keep); // a change of the settings sets the reader's own theme
    return () => {
      end();
      apply();
    };
  }, [given]);
}
