/** Rows of the comparison of two runs, and what is said about them. */
import type { Comparison } from "../api/copies";
import { costOf, numberOr, textOr } from "../run-file/rows";
import { scopeParts } from "../store/scopes";
import { texts } from "../texts";
import { count, duration } from "../ui/format";
import { visibleName } from "../ui/visible-text";

const t = texts.compare;
const ONLY_A = 32;
const ONLY_B = 64;

export interface StepSide {
  id: string;
  ms: number | null;
  tokens: number;
  cost: Readonly<Record<string, string>>;
  isReused: boolean;
}

/** One step of both runs, or of one of them. */
export interface ComparedRow {
  /** Its id in A, else in B. */
  id: string;
  nodeId: string;
  scope: string;
  ordinal: number;
  /** The sum of what differs (`docs/http.md`). */
  what: number;
  a: StepSide | null;
  b: StepSide | null;
}

export type Result = "same" | "differs" | "only_a" | "only_b";

export function rowsOf(page: Pick<Comparison, "columns" | "rows">): ComparedRow[] {
  const place = new Map(page.columns.map((name, index) => [name, index]));
  return page.rows.map((row) => {
    const value = (name: string): unknown => row[place.get(name) ?? -1];
    const text = (name: string): string => textOr(value(name), "");
    const number = (name: string): number => numberOr(value(name), 0);
    const side = (of: "a" | "b"): StepSide | null => {
      const id = value(`${of}_id`);
      const ms = value(`${of}_ms`);
      if (typeof id !== "string") return null;
      return {
        id,
        ms: typeof ms === "number" ? ms : null,
        tokens: number(`${of}_tokens`),
        cost: costOf(value(`${of}_cost`)),
        isReused: value(`${of}_reused`) === true,
      };
    };
    const [a, b] = [side("a"), side("b")];
    return { id: a?.id ?? b?.id ?? "", nodeId: text("node_id"), scope: text("scope"), ordinal: number("ordinal"), what: number("what"), a, b };
  });
}

export function resultOf(what: number): Result {
  if (what & ONLY_A) return "only_a";
  if (what & ONLY_B) return "only_b";
  return what ? "differs" : "same";
}

/** Return in what a step differs, in words: "inputs, outputs". */
export function whatText(what: number): string {
  return Object.entries(t.bits).filter(([bit]) => what & Number(bit)).map(([, word]) => word).join(", ");
}

/** Return how long a step took; null of one that a fork has reused, as of one that is not there. */
export function tookOf(side: StepSide | null): number | null {
  return side && !side.isReused ? side.ms : null;
}

export function tokensOf(side: StepSide | null): number | null {
  return side && !side.isReused ? side.tokens : null;
}

/** Return the item and the round of a step: "every point › item 3, round 2". */
export function whereText(row: Pick<ComparedRow, "scope" | "ordinal">, names: ReadonlyMap<string, string>): string {
  const items = scopeParts(row.scope).map((part) => `${visibleName(names.get(part.container) ?? part.container, 40)} › ${t.item(part.item)}`);
  return [items.join(" › "), row.ordinal ? t.round(row.ordinal) : ""].filter(Boolean).join(", ");
}

/** Return B minus A with its sign: "+1.20 s"; null where one side is missing. */
export function durationDifference(a: number | null, b: number | null): string | null {
  if (a === null || b === null) return null;
  return signed(b - a, duration);
}

export function countDifference(a: number | null, b: number | null): string | null {
  if (a === null || b === null) return null;
  return signed(b - a, (amount) => count(amount));
}

function signed(difference: number, write: (amount: number) => string): string {
  if (difference === 0) return "±0";
  return `${difference > 0 ? "+" : "−"}${write(Math.abs(difference))}`;
}

/** Return B minus A by currency; null if neither run has cost anything. */
export function costDifference(a: Readonly<Record<string, string>>, b: Readonly<Record<string, string>>): string | null {
  const parts = [...new Set([...Object.keys(a), ...Object.keys(b)])].map((currency) => {
    const difference = Number(b[currency] ?? 0) - Number(a[currency] ?? 0);
    return `${signed(difference, (amount) => String(Number(amount.toPrecision(6))))} ${currency}`;
  });
  return parts.join(", ") || null;
}
