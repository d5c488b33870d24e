/** The budget of a copy, as it is typed. */
import { texts } from "../texts";

const t = texts.copies.budget;

export interface TypedBudget {
  tokens: string;
  calls: string;
  money: string;
  currency: string;
  seconds: string;
}

export const NO_BUDGET: TypedBudget = { tokens: "", calls: "", money: "", currency: "USD", seconds: "" };

const MEASURES = ["tokens", "calls", "money", "seconds"] as const;
const WHOLE: readonly string[] = ["tokens", "calls"];

/** Return the budget for the API, null if nothing is limited, or what is wrong. */
export function budgetOf(typed: TypedBudget): { budget: Record<string, number | string> | null } | { error: string } {
  const budget: Record<string, number | string> = {};
  for (const measure of MEASURES) {
    const text = typed[measure].trim();
    if (!text) continue;
    const amount = Number(text);
    if (!(amount > 0) || !Number.isFinite(amount)) return { error: t.wrong(t[measure]) };
    if (WHOLE.includes(measure) && !Number.isInteger(amount)) return { error: t.whole(t[measure]) };
    budget[measure] = amount;
  }
  if ("money" in budget) {
    const currency = typed.currency.trim().toUpperCase();
    if (!/^[A-Z]{3}$/.test(currency)) return { error: t.code };
    budget.currency = currency;
  }
  return { budget: Object.keys(budget).length ? budget : null };
}
