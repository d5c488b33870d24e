/** The columns of the list of runs, and which of them a reader has hidden. */
import { storedValue } from "../ui/stored-value";

export interface Column {
  name: ColumnName;
  width: string;
  isNumeric?: boolean;
  /** Shown from this width of the window on, in pixels. */
  from?: number;
}

export type ColumnName = "query" | "waits" | "started" | "took" | "steps" | "tokens" | "cost" | "origin";

/** After the checkbox, the status and the agent, which are always shown. */
export const COLUMNS: readonly Column[] = [
  { name: "query", width: "minmax(7rem,1.8fr)" },
  { name: "waits", width: "5rem", from: 1280 },
  { name: "started", width: "6.5rem" },
  { name: "took", width: "5.5rem", isNumeric: true },
  { name: "steps", width: "4rem", isNumeric: true },
  { name: "tokens", width: "4.5rem", isNumeric: true },
  { name: "cost", width: "6.5rem", isNumeric: true, from: 1180 },
  { name: "origin", width: "5rem", from: 1280 },
];

const WIDE_FROM = 1280;

export const hiddenColumns = storedValue<readonly string[]>("easel.hidden_columns", (stored) => (Array.isArray(stored) ? stored.filter((each) => typeof each === "string") : []));

/** Return the columns that are shown in a window. */
export function shownColumns(hidden: readonly string[], width: number): readonly Column[] {
  return COLUMNS.filter(({ name, from = 0 }) => !hidden.includes(name) && width >= from);
}

/** Return the grid of a row. Times have more room as date and time. */
export function gridOf(columns: readonly Column[], width: number, hasAbsoluteTimes: boolean): string {
  const hasQuery = columns.some(({ name }) => name === "query");
  const isWide = width >= WIDE_FROM;
  const agent = hasQuery && !isWide ? "minmax(7rem,11rem)" : "minmax(7rem,1fr)";
  const widths = columns.map((column) => (column.name === "started" && hasAbsoluteTimes ? "9.5rem" : column.width));
  return ["1.75rem", isWide ? "9rem" : "11rem", agent, ...widths].join(" ");
}
