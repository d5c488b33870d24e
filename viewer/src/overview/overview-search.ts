/** The range of time and the agent of the figures: search parameters of the page, and query parameters of the API. */
import type { Query } from "../api/base";
import { isHexId, isoTime } from "../ui/search-values";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const MAX_SPAN_MS = 31 * DAY_MS;
const CUSTOM_BUCKETS = 48;

/** Spans that end now, in parts that begin at even times. */
export const RANGES = {
  hour: { span: HOUR_MS, buckets: 30 },
  day: { span: DAY_MS, buckets: 48 },
  week: { span: 7 * DAY_MS, buckets: 56 },
  month: { span: MAX_SPAN_MS, buckets: 62 },
} as const;

export type RangeName = keyof typeof RANGES;

export interface OverviewSearch {
  /** The last day if neither it nor `from` is given. */
  time?: RangeName;
  /** ISO 8601; both or none. */
  from?: string;
  to?: string;
  agent?: string;
}

/** Return the valid parameters of an address. */
export function overviewSearch(search: Readonly<Record<string, unknown>>): OverviewSearch {
  const agent = isHexId(search.agent) ? search.agent : undefined;
  const [from, to] = [isoTime(search.from), isoTime(search.to)];
  const range = from !== undefined && to !== undefined && isValidRange(from, to) ? { from, to } : undefined;
  const time = (Object.keys(RANGES) as RangeName[]).find((each) => each === search.time);
  return { ...(range ?? (time && time !== "day" ? { time } : {})), ...(agent && { agent }) };
}

export function isValidRange(from: string, to: string): boolean {
  const span = Date.parse(to) - Date.parse(from);
  return span > 0 && span <= MAX_SPAN_MS;
}

/** Return the query for the API at a moment, in milliseconds since 1970. */
export function overviewQuery(search: OverviewSearch, now: number): Query {
  if (search.from !== undefined && search.to !== undefined) {
    return { from: search.from, to: search.to, agent_id: search.agent, buckets: CUSTOM_BUCKETS };
  }
  const { span, buckets } = RANGES[search.time ?? "day"];
  const step = span / buckets;
  const end = Math.ceil(now / step) * step;
  return { from: new Date(end - span).toISOString(), to: new Date(end).toISOString(), agent_id: search.agent, buckets };
}
