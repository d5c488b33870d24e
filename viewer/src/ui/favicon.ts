/** The icon of the tab: Easel's, with a dot in the colour of a run's status while a run is in view. */
import { useEffect } from "react";

import type { Tone } from "../store/run-status";

/** Colours that are seen on light and on dark tabs; a picture does not follow the theme of the page. */
const DOTS: Readonly<Record<Tone, string>> = {
  neutral: "#8a93a3",
  accent: "#3b82f6",
  amber: "#f59e0b",
  violet: "#a855f7",
  green: "#22c55e",
  red: "#ef4444",
  muted: "#a3a3a3",
};

/** Return the icon as a data URL. */
export function iconOf(tone: Tone): string {
  const svg =
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#1f4fa3"/>' +
    '<path d="M9 9h14v11H9zM12 20l-3 6M20 20l3 6M16 20v5" fill="none" stroke="#fff" stroke-width="2" stroke-linecap="round"/>' +
    `<circle cx="24" cy="8" r="7.500" fill="${DOTS[tone]}" stroke="#fff" stroke-width="2"/></svg>`;
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}

/** Show a status in the icon as long as the component is shown. */
export function useStatusIcon(tone: Tone): void {
  useEffect(() => {
    const link = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
    if (!link) return;
    const plain = link.dataset.plain ?? link.href;
    link.dataset.plain = plain;
    link.href = iconOf(tone);
    return () => {
      link.href = plain;
    };
  }, [tone]);
}
