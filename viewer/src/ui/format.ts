/** Numbers, sizes, durations and times as they are shown, in the time zone of the settings. */
import { readSettings } from "./settings";

export function duration(ms: number | null): string {
  if (ms === null) return "–";
  if (ms < 1) return `${ms === 0 ? 0 : "<1"} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.round((ms % 60_000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function bytes(count: number): string {
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${(count / 1024).toFixed(1)} KiB`;
  return `${(count / 1024 / 1024).toFixed(1)} MiB`;
}

export function count(value: number | null): string {
  return value === null ? "–" : value.toLocaleString("en");
}

const pad = (value: number, digits = 2): string => String(value).padStart(digits, "0");

/** Return year, month, day, hour, minute and second in the zone that the reader has chosen. */
function fieldsOf(ms: number): [number, number, number, number, number, number] {
  const at = new Date(ms);
  return readSettings().zone === "utc"
    ? [at.getUTCFullYear(), at.getUTCMonth() + 1, at.getUTCDate(), at.getUTCHours(), at.getUTCMinutes(), at.getUTCSeconds()]
    : [at.getFullYear(), at.getMonth() + 1, at.getDate(), at.getHours(), at.getMinutes(), at.getSeconds()];
}

const zoneMark = (): string => (readSettings().zone === "utc" ? " UTC" : "");

export function day(ms: number): string {
  const [year, month, date] = fieldsOf(ms);
  return `${year}-${pad(month)}-${pad(date)}`;
}

/** Return a moment in the reader's time zone: "2026-11-28 13:20:55", with "UTC" after it if that is the zone. */
export function moment(ms: number): string {
  return `${day(ms)} ${clock(ms)}${zoneMark()}`;
}

/** Return a moment without its seconds: "2026-11-28 13:20". */
export function minute(ms: number): string {
  return `${day(ms)} ${clock(ms).slice(0, 5)}${zoneMark()}`;
}

export function clock(ms: number): string {
  const [, , , hour, min, second] = fieldsOf(ms);
  return `${pad(hour)}:${pad(min)}:${pad(second)}`;
}

export function clockMs(ms: number): string {
  return `${clock(ms)}.${pad(new Date(ms).getMilliseconds(), 3)}`;
}

const AGES = [
  [60_000, 1000, "s"],
  [3_600_000, 60_000, "min"],
  [48 * 3_600_000, 3_600_000, "h"],
  [Number.POSITIVE_INFINITY, 86_400_000, "d"],
] as const;

/** Return how long ago a moment was: "5 min ago". */
export function age(ms: number, now: number): string {
  const elapsed = Math.max(0, now - ms);
  const [, unit, name] = AGES.find(([end]) => elapsed < end) ?? AGES[3];
  return `${Math.floor(elapsed / unit)} ${name} ago`;
}

/** Return amounts by currency: "0.0123 USD + 1.00 EUR". */
export function money(cost: Readonly<Record<string, string>>): string | null {
  return Object.entries(cost).map(([currency, amount]) => `${amount} ${currency}`).join(" + ") || null;
}
