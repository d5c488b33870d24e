/** Rows of the list with the states that were read after them. */
import type { RunRow, RunStateRow } from "../api/replies";
import { isOver } from "../store/run-status";

const MAX_POLLED = 100; // of one request for states

/** Return the rows of all pages, each run once, with their newest states. */
export function mergeRuns(pages: readonly (readonly RunRow[])[], states: ReadonlyMap<string, RunStateRow>): RunRow[] {
  const seen = new Map<string, RunRow>();
  for (const row of pages.flat()) if (!seen.has(row.id)) seen.set(row.id, row);
  return [...seen.values()].map((row) => {
    const state = states.get(row.id);
    return state && !isOver(row.status) ? { ...row, ...state, failed_node: row.failed_node ?? null } : row;
  });
}

/** Return the ids of the rows in view that can still change. */
export function changingIds(rows: readonly RunRow[]): string[] {
  return rows.filter((row) => !isOver(row.status)).map((row) => row.id).slice(0, MAX_POLLED);
}
