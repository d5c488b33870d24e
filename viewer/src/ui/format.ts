/** Numbers, sizes, durations and times as they are shown. */
import { visibleName } from "./visible-text";

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

/** Return a moment in the reader's time zone: "2026-11-28 13:20:55". */
export function moment(ms: number): string {
  const at = new Date(ms);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock(ms)}`;
}

export function clock(ms: number): string {
  const at = new Date(ms);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

export function clockMs(ms: number): string {
  return `${clock(ms)}.${pad(new Date(ms).getMilliseconds(), 3)}`;
}

/** Return amounts by currency: "0.0123 USD + 1.00 EUR". */
export function money(cost: Readonly<Record<string, string>>): string | null {
  return visibleName(Object.entries(cost).map(([currency, amount]) => `${amount} ${currency}`).join(" + ")) || null;
}
