/** The filters of the list of runs: search parameters of the page, and query parameters of the API. */
import type { Query } from "../api/base";
import { RUN_LOOKS } from "../store/run-status";
import { isHexId, isoTime } from "../ui/search-values";

export const TIMES = { hour: 3_600_000, day: 86_400_000, week: 604_800_000 } as const;
export const ORIGINS = ["none", "any", "rerun", "fork", "debug", "webhook", "mcp", "schedule"] as const;
const MAX_TEXT_CHARS = 200; // of the API

export interface RunListSearch {
  /** Statuses, separated by commas. */
  status?: string;
  agent?: string;
  version?: string;
  /** The id of a conversation. */
  conversation?: string;
  time?: keyof typeof TIMES;
  /** ISO 8601; instead of `time`. Runs that were accepted at or after it. */
  from?: string;
  /** Runs that were accepted before it. */
  to?: string;
  trouble?: "1";
  origin?: (typeof ORIGINS)[number];
  q?: string;
  /** Whether rows stay as they were loaded. */
  live?: "off";
}

export type RunListChange = Partial<Record<keyof RunListSearch, string | undefined>>;

/** Return the valid filters of an address. */
export function runListSearch(search: Readonly<Record<string, unknown>>): RunListSearch {
  const given = typeof search.status === "string" ? search.status.split(",") : [];
  const status = given.filter((each) => each in RUN_LOOKS).join(",");
  const { agent, version, conversation } = search;
  const [from, to] = [isoTime(search.from), isoTime(search.to)];
  const time = from === undefined && to === undefined ? (Object.keys(TIMES) as (keyof typeof TIMES)[]).find((each) => each === search.time) : undefined;
  const origin = ORIGINS.find((each) => each === search.origin);
  const q = typeof search.q === "string" ? search.q.trim().slice(0, MAX_TEXT_CHARS) : "";
  return {
    ...(status && { status }),
    ...(isHexId(agent) && { agent }),
    ...(isHexId(version) && { version }),
    ...(isHexId(conversation) && { conversation }),
    ...(time && { time }),
    ...(from && { from }),
    ...(to && { to }),
    ...(search.trouble === "1" && { trouble: "1" }),
    ...(origin && { origin }),
    ...(q && { q }),
    ...(search.live === "off" && { live: "off" }),
  };
}

/** Return the query parameters for the API at a moment, in milliseconds since 1970. */
export function apiFilters({ status, agent, version, conversation, time, from, to, trouble, origin, q }: RunListSearch, now: number): Query {
  const since = time === undefined ? from : new Date(now - TIMES[time]).toISOString();
  return { status, agent_id: agent, version_id: version, session_id: conversation, from: since, to, trouble, origin, q };
}

/** Return the parameters that select runs. */
export function filtersOf(search: RunListSearch): RunListSearch {
  const filters = { ...search };
  delete filters.live;
  return filters;
}

export function hasFilters(search: RunListSearch): boolean {
  return Object.keys(filtersOf(search)).length > 0;
}

/** Return the statuses with one added, or without it if it was there. */
export function toggledStatus(search: RunListSearch, status: string): string {
  const known = search.status?.split(",") ?? [];
  return (known.includes(status) ? known.filter((each) => each !== status) : [...known, status]).join(",");
}
