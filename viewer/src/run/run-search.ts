/** The search parameters of a page that shows a run. What is not valid is left out. */

export const VIEWS = ["graph", "time", "log", "talk"] as const;
export const TABS = ["overview", "input", "output", "model", "tools", "attempts", "parameters", "events", "raw"] as const;
export const FILTERS = ["all", "active", "failed", "retried", "slow"] as const;
export const ORDERS = ["canonical", "start", "duration", "cost"] as const;
export const OVERLAYS = ["state", "time", "wait", "tokens", "cost", "count"] as const;
export const ITEM_FILTERS = ["all", "failed", "running", "slowest"] as const;

export type View = (typeof VIEWS)[number];
export type Tab = (typeof TABS)[number];
export type Filter = (typeof FILTERS)[number];
export type Order = (typeof ORDERS)[number];
export type Overlay = (typeof OVERLAYS)[number];
export type ItemFilter = (typeof ITEM_FILTERS)[number];

/** All are texts, as they stand in the address; what is undefined is not in it. */
export interface RunSearch {
  /** The main pane; the graph if it is not given. */
  view?: View | undefined;
  /** The selected step: 32 hex digits. */
  step?: string | undefined;
  /** The tab of the inspector. */
  tab?: Tab | undefined;
  /** Which steps are listed. */
  only?: Filter | undefined;
  /** The text that listed steps have in their name, error or id. */
  find?: string | undefined;
  order?: Order | undefined;
  /** What is open in Time: `openKeys`. */
  x?: string | undefined;
  /** The part of the run that Time shows: `from,to` in milliseconds since its start. */
  w?: string | undefined;
  /** Whether the axis of Time has the hours of the day. */
  axis?: "clock" | undefined;
  /** The time of the film, in milliseconds since the start of the run. */
  t?: string | undefined;
  /** The camera of the drawing: zoom and centre, `k,x,y`. */
  z?: string | undefined;
  overlay?: Overlay | undefined;
  /** Whether the nodes are shown as a list. */
  list?: "1" | undefined;
  /** The container whose items are shown, by its step. */
  items?: string | undefined;
  which?: ItemFilter | undefined;
  /** The number of the item whose steps are shown. */
  item?: string | undefined;
}

const ID = /^[0-9a-f]{32}$/;
const NUMBERS = /^-?\d+(\.\d+)?(,-?\d+(\.\d+)?)*$/;
const MAX_LENGTH = 4000;

export function runSearch(search: Readonly<Record<string, unknown>>): RunSearch {
  const text = (name: string, isValid: (value: string) => boolean): string | undefined => {
    const value = search[name];
    return typeof value === "string" && value !== "" && value.length <= MAX_LENGTH && isValid(value) ? value : undefined;
  };
  const numbers = (name: string, count: number): string | undefined => text(name, (value) => NUMBERS.test(value) && value.split(",").length === count);
  const one = <T extends string>(name: string, of: readonly T[], otherwise?: T): T | undefined => {
    const found = of.find((each) => each === search[name]);
    return found === otherwise ? undefined : found;
  };
  const found: Required<RunSearch> = {
    view: one("view", VIEWS),
    step: text("step", (value) => ID.test(value)),
    tab: one("tab", TABS),
    only: one("only", FILTERS, "all"),
    find: text("find", () => true),
    order: one("order", ORDERS, "canonical"),
    x: text("x", () => true),
    w: numbers("w", 2),
    axis: one("axis", ["clock"]),
    t: numbers("t", 1),
    z: numbers("z", 3),
    overlay: one("overlay", OVERLAYS, "state"),
    list: one("list", ["1"]),
    items: text("items", (value) => ID.test(value)),
    which: one("which", ITEM_FILTERS, "all"),
    item: text("item", (value) => /^\d{1,9}$/.test(value)),
  };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
}

/** Return numbers of a parameter such as `k,x,y`. */
export function numbersOf(value: string | undefined): readonly number[] {
  return value === undefined ? [] : value.split(",").map(Number);
}

/** Return the keys of open rows as one parameter, and the other way round. */
export function openParameter(keys: Iterable<string>): string | undefined {
  const all = [...keys].map(encodeURIComponent);
  let length = 0;
  const fitting = all.filter((key) => (length += key.length + 1) <= MAX_LENGTH);
  return fitting.join(",") || undefined;
}

export function openKeys(parameter: string | undefined): ReadonlySet<string> {
  return new Set((parameter ?? "").split(",").filter(Boolean).map(decoded));
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
