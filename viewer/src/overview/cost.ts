/** Amounts by currency as figures show them. */

/** Return amounts with the digits that matter: "0.0123 USD + 12.50 EUR"; null without any. */
export function costText(cost: Readonly<Record<string, number>>): string | null {
  return Object.entries(cost).map(([currency, amount]) => `${amountText(amount)} ${currency}`).join(" + ") || null;
}

export function amountText(amount: number): string {
  if (amount === 0) return "0";
  if (amount >= 1) return amount.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  return amount.toLocaleString("en", { maximumSignificantDigits: 3, maximumFractionDigits: 10 });
}

/** Return an unknown field of a reply as amounts by currency. */
export function costOf(value: unknown): Record<string, number> {
  if (typeof value !== "object" || value === null) return {};
  return Object.fromEntries(Object.entries(value).map(([currency, amount]) => [currency, Number(amount)]).filter((entry): entry is [string, number] => Number.isFinite(entry[1])));
}
