/** The filters of the list of runs: search parameters of the page, and query parameters of the API. */
import type { Query } from "../api/base";
import { RUN_LOOKS } from "../store/run-status";

export const TIMES = { hour: 3_600_000, day: 86_400_000, week: 604_800_000 } as const;
const MAX_TEXT_CHARS = 300;

export interface RunListSearch {
  /** Statuses, separated by commas. */
  status?: string;
  agent?: string;
  time?: keyof typeof TIMES;
  trouble?: "1";
  q?: string;
}

/** Return the valid filters of an address. */
export function runListSearch(search: Readonly<Record<string, unknown>>): RunListSearch {
  const given = typeof search.status === "string" ? search.status.split(",") : [];
  const status = given.filter((each) => each in RUN_LOOKS).join(",");
  const agent = typeof search.agent === "string" && /^[0-9a-f]{32}$/.test(search.agent) ? search.agent : undefined;
  const time = (Object.keys(TIMES) as (keyof typeof TIMES)[]).find((each) => each === search.time);
  const q = typeof search.q === "string" ? search.q.trim().slice(0, MAX_TEXT_CHARS) : "";
  return {
    ...(status && { status }),
    ...(agent && { agent }),
    ...(time && { time }),
    ...(search.trouble === "1" && { trouble: "1" }),
    ...(q && { q }),
  };
}

/** Return the query parameters for the API at a moment, in milliseconds since 1970. */
export function apiFilters({ status, agent, time, trouble, q }: RunListSearch, now: number): Query {
  const from = time === undefined ? undefined : new Date(now - TIMES[time]).toISOString();
  return { status, agent_id: agent, from, trouble, q };
}

export function hasFilters(search: RunListSearch): boolean {
  return Object.keys(search).length > 0;
}

/** Return the statuses with one added, or without it if it was there. */
export function toggledStatus(search: RunListSearch, status: string): string {
  const known = search.status?.split(",") ?? [];
  return (known.includes(status) ? known.filter((each) => each !== status) : [...known, status]).join(",");
}
