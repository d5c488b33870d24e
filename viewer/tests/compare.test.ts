/** Rows of a comparison, and what is said about them. */
import { describe, expect, it } from "vitest";

import { compareSearch } from "../src/compare/compare-search";
import { costDifference, countDifference, durationDifference, resultOf, rowsOf, tookOf, whatText, whereText } from "../src/compare/rows";
import { totalOf } from "../src/compare/use-comparison";

const COLUMNS = ["node_id", "scope", "ordinal", "a_id", "b_id", "what", "a_ms", "b_ms", "a_tokens", "b_tokens", "a_cost", "b_cost", "a_outcome", "b_outcome", "a_reused", "b_reused"];

describe("rows", () => {
  it("are read by the names of their columns", () => {
    const rows = rowsOf({
      columns: COLUMNS,
      rows: [
        ["LLM:0", "It#0.3", 1, "a1", "b1", 3, 10, 4, 100, 0, { USD: 0.5 }, {}, "Finished", "Finished", false, true],
        ["Message:0", "", 0, null, "b2", 64, null, 5, null, 0, null, {}, null, "Finished", null, false],
      ],
    });
    expect(rows.map((row) => [row.id, row.a?.ms, row.b?.ms])).toEqual([["a1", 10, 4], ["b2", undefined, 5]]);
    expect(rows[0]?.a?.cost).toEqual({ USD: "0.5" });
    expect(tookOf(rows[0]?.b ?? null)).toBeNull(); // reused: it took no time
    expect(rows.map((row) => whereText(row, new Map([["It", "every point"]])))).toEqual(["every point › item 4, round 2", ""]);
  });

  it.each([
    [0, "same", ""],
    [3, "differs", "inputs, outputs"],
    [4 + 256, "differs", "outcome, prompts"],
    [32, "only_a", ""],
    [64, "only_b", ""],
  ])("with the sum %d are %s: %s", (what, result, text) => {
    expect(resultOf(what)).toBe(result);
    expect(whatText(what)).toBe(text);
  });
});

describe("differences", () => {
  it("have a sign, and are missing where a side is", () => {
    expect(durationDifference(100, 1300)).toBe("+1.20 s");
    expect(countDifference(1340, 1000)).toBe("−340");
    expect(countDifference(7, 7)).toBe("±0");
    expect(durationDifference(null, 5)).toBeNull();
    expect(costDifference({ USD: "0.1" }, { USD: "0.3", EUR: "1" })).toBe("+0.2 USD, +1 EUR");
    expect(costDifference({}, {})).toBeNull();
  });

  it("are counted by filters; differences include what one run has", () => {
    const totals = { same: 1, differs: 2, only_a: 4, only_b: 8 };
    expect((["all", "same", "differs", "only_a", "only_b"] as const).map((filter) => totalOf(totals, filter))).toEqual([15, 1, 14, 4, 8]);
  });
});

// T059
describe("search parameters", () => {
  it("are kept if they are valid and not the default", () => {
    const step = "0".repeat(32);
    expect(compareSearch({ view: "time", only: "differs", step })).toEqual({ view: "time", only: "differs", step });
    expect(compareSearch({ view: "steps", only: "all", step: "x" })).toEqual({});
  });
});
