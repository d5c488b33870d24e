/** What steps have used, in words: "608 tokens, 0.01 USD, 182 ms". */
import { costOf } from "../run-file/rows";
import { texts } from "../texts";
import { duration, money } from "../ui/format";

export interface Amounts {
  tokens: number;
  calls?: number;
  cost: unknown;
  unpricedCalls: number;
  ms: number | null;
}

export function amountsText({ tokens, calls, cost, unpricedCalls, ms }: Amounts): string {
  const parts = [
    tokens ? texts.rerun.tokens(tokens) : null,
    calls ? texts.rerun.calls(calls) : null,
    money(costOf(cost)),
    unpricedCalls ? texts.fork.unpriced(unpricedCalls) : null,
    ms === null ? null : duration(ms),
  ];
  return parts.filter((each) => each !== null).join(", ");
}
