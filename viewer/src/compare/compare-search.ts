/** The search parameters of the page that compares two runs. What is not valid is left out. */

export const VIEWS = ["steps", "graph", "time"] as const;
export const FILTERS = ["all", "same", "differs", "only_a", "only_b"] as const;

export type CompareView = (typeof VIEWS)[number];
export type CompareFilter = (typeof FILTERS)[number];

export interface CompareSearch {
  /** The main pane; the steps if it is not given. */
  view?: CompareView;
  /** The step that is shown side by side, by its id in either run. */
  step?: string;
  /** Which steps are listed. */
  only?: CompareFilter;
}

export function compareSearch(search: Readonly<Record<string, unknown>>): CompareSearch {
  const view = VIEWS.find((each) => each === search.view);
  const only = FILTERS.find((each) => each === search.only);
  const step = typeof search.step === "string" && /^[0-9a-f]{32}$/.test(search.step) ? search.step : undefined;
  return { ...(view && view !== "steps" && { view }), ...(step && { step }), ...(only && only !== "all" && { only }) };
}
