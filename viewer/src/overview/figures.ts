/** What the figures of the API lead to in the list of runs. */
import type { Overview, OverviewBucket } from "../api/replies";
import type { RunListSearch } from "../runs/run-list-search";

/** End states in the order in which bars are stacked, each with the statuses that it stands for. */
export const STATES = [
  { name: "succeeded", statuses: "succeeded", tone: "green", icon: "✓" },
  { name: "cancelled", statuses: "cancelled", tone: "muted", icon: "⊘" },
  { name: "active", statuses: "queued,running,waiting,stopping", tone: "accent", icon: "▸" },
  { name: "failed", statuses: "failed", tone: "red", icon: "✗" },
] as const;

export type StateName = (typeof STATES)[number]["name"];

/** Every status but `refused`, which figures leave out. */
const COUNTED = STATES.map((state) => state.statuses).join(",");

/** A part of the range, with its end. */
export interface Part extends OverviewBucket {
  end: number;
}

export function partsOf({ buckets, to }: Overview): Part[] {
  return buckets.map((bucket, index) => ({ ...bucket, end: buckets[index + 1]?.t ?? Date.parse(to) }));
}

/** Return the filter of the list that gives exactly the runs of a figure. */
export function listFilter(from: number, to: number, agent: string | undefined, statuses: string = COUNTED): RunListSearch {
  return { status: statuses, from: new Date(from).toISOString(), to: new Date(to).toISOString(), ...(agent && { agent }) };
}

/** Return where the counted runs begin: later than the range if it has more of them than are counted. */
export function countedFrom(overview: Overview): number {
  return Date.parse(overview.counted_from ?? overview.from);
}

/** Return the currency in which most rows have a cost; null without any. */
export function mainCurrency(rows: readonly { cost: Readonly<Record<string, number>> }[]): string | null {
  const uses = new Map<string, number>();
  for (const { cost } of rows) for (const currency of Object.keys(cost)) uses.set(currency, (uses.get(currency) ?? 0) + 1);
  return [...uses].sort(([, a], [, b]) => b - a)[0]?.[0] ?? null;
}
