/** Filters that a reader has saved under a name, in this browser. */
import { storedValue } from "../ui/stored-value";
import { filtersOf, runListSearch, type RunListSearch } from "./run-list-search";

const MAX_VIEWS = 50;
export const MAX_NAME_CHARS = 60;

export interface SavedView {
  name: string;
  search: RunListSearch;
}

export const savedViews = storedValue<readonly SavedView[]>("easel.views", parseViews);

export function parseViews(stored: unknown): SavedView[] {
  if (!Array.isArray(stored)) return [];
  return stored.slice(0, MAX_VIEWS).flatMap((each: unknown): SavedView[] => {
    const { name, search } = (typeof each === "object" && each !== null ? each : {}) as Record<string, unknown>;
    if (typeof name !== "string" || !name || typeof search !== "object" || search === null) return [];
    return [{ name: name.slice(0, MAX_NAME_CHARS), search: filtersOf(runListSearch(search as Record<string, unknown>)) }];
  });
}

/** Save filters under a name; those that had it are replaced. */
export function saveView(name: string, search: RunListSearch): void {
  const others = savedViews.read().filter((view) => view.name !== name);
  savedViews.write([...others, { name, search: filtersOf(search) }].slice(-MAX_VIEWS));
}

export function removeView(name: string): void {
  savedViews.write(savedViews.read().filter((view) => view.name !== name));
}
