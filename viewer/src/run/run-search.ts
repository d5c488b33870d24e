/** The search parameters of a page that shows a run. What is not valid is left out. */

export const VIEWS = ["graph", "time", "log", "talk"] as const;
export const TABS = ["overview", "input", "output", "model", "tools", "attempts", "events", "raw"] as const;
export const FILTERS = ["all", "active", "failed", "retried"] as const;

export type View = (typeof VIEWS)[number];
export type Tab = (typeof TABS)[number];

export interface RunSearch {
  /** The main pane; the graph if it is not given. */
  view?: View;
  /** The selected step: 32 hex digits. */
  step?: string;
  /** The tab of the inspector. */
  tab?: Tab;
  /** Which steps are listed. */
  only?: (typeof FILTERS)[number];
}

export function runSearch(search: Readonly<Record<string, unknown>>): RunSearch {
  const view = VIEWS.find((each) => each === search.view);
  const tab = TABS.find((each) => each === search.tab);
  const only = FILTERS.find((each) => each === search.only);
  const step = typeof search.step === "string" && /^[0-9a-f]{32}$/.test(search.step) ? search.step : undefined;
  return { ...(view && { view }), ...(step && { step }), ...(tab && { tab }), ...(only && only !== "all" && { only }) };
}
