import { expect, test } from "vitest";

import { hasWords } from "../src/palette/words";
import { amountText, costOf, costText } from "../src/overview/cost";
import { pathOf } from "../src/overview/line-path";
import { listFilter, mainCurrency, partsOf } from "../src/overview/figures";
import { overviewQuery, overviewSearch } from "../src/overview/overview-search";
import { contentOf } from "../src/conversations/content";
import { mergeMessages } from "../src/conversations/merge-messages";
import { browserName } from "../src/settings/browser-name";
import { problemsOf } from "../src/system/problems";
import type { ConversationMessage, Overview } from "../src/api/replies";
import { runListSearch } from "../src/runs/run-list-search";

const NOW = Date.parse("2026-11-28T10:17:31Z");

test("spans end at an even time after now, and each part begins at one", () => {
  expect(overviewQuery({}, NOW)).toMatchObject({ from: "2026-11-27T10:30:00.000Z", to: "2026-11-28T10:30:00.000Z", buckets: 48 });
  expect(overviewQuery({ time: "hour" }, NOW)).toMatchObject({ from: "2026-11-28T09:18:00.000Z", to: "2026-11-28T10:18:00.000Z" });
});

test.each([
  [{ from: "2026-11-01T00:00:00Z", to: "2026-11-02T00:00:00Z" }, { from: "2026-11-01T00:00:00.000Z", to: "2026-11-02T00:00:00.000Z" }],
  [{ from: "2026-11-02T00:00:00Z", to: "2026-11-01T00:00:00Z" }, {}],
  [{ from: "2026-01-01T00:00:00Z", to: "2026-11-01T00:00:00Z", time: "week" }, { time: "week" }],
  [{ from: "2026-11-01T00:00:00Z" }, {}],
  [{ time: "day", agent: "x" }, {}],
])("parameters %j of figures become %j", (given, expected) => {
  expect(overviewSearch(given)).toEqual(expected);
});

test("a part of the range ends where the next one begins, the last with the range", () => {
  const overview = { buckets: [{ t: 0 }, { t: 10 }], to: new Date(20).toISOString() } as Overview;
  expect(partsOf(overview).map(({ t, end }) => [t, end])).toEqual([[0, 10], [10, 20]]);
});

test("the filter of a bar is one that the list takes over", () => {
  const filter = listFilter(0, NOW, "0".repeat(32), "failed");
  expect(runListSearch({ ...filter })).toEqual(filter);
  expect(runListSearch({ ...listFilter(0, 1, undefined) }).status).not.toContain("refused");
});

test("a line has a gap where a part has no value", () => {
  expect(pathOf([1, null, 2, 3], (value) => (value === null ? null : [value, value]))).toBe("M1.0,1.0M2.0,2.0L3.0,3.0");
});

test("amounts have the digits that matter", () => {
  expect([0, 0.0000123, 0.5, 1234.5].map(amountText)).toEqual(["0", "0.0000123", "0.5", "1,234.50"]);
  expect(costText({ USD: 1, EUR: 0.25 })).toBe("1.00 USD + 0.25 EUR");
  expect(costText({})).toBeNull();
  expect(costOf({ USD: "0.5", EUR: "x" })).toEqual({ USD: 0.5 });
  expect(mainCurrency([{ cost: { EUR: 1 } }, { cost: { USD: 1, EUR: 2 } }])).toBe("EUR");
});

test.each([
  ["a text", { text: "a text", cutFrom: null, others: [] }],
  [{ content: "an answer", downloads: [], files: ["a"], _spoken: "x" }, { text: "an answer", cutFrom: null, others: ["files"] }],
  [{ $preview: "begin", bytes: 70_000, type: "text" }, { text: "begin", cutFrom: 70_000, others: [] }],
  [{ result: { $preview: "begin", bytes: 5, type: "text" } }, { text: "begin", cutFrom: 5, others: [] }],
  [{ number: 3 }, { text: "", cutFrom: null, others: ["number"] }],
  [null, { text: "", cutFrom: null, others: [] }],
  [[1], { text: "[1]", cutFrom: null, others: [] }],
])("the content %j of a message is shown", (content, expected) => {
  expect(contentOf(content)).toEqual(expected);
});

test("messages of pages that overlap are shown once, in order", () => {
  const messages = (...numbers: number[]): ConversationMessage[] => numbers.map((number) => ({ number }) as ConversationMessage);
  expect(mergeMessages([messages(3, 4), messages(1, 2, 3)]).map(({ number }) => number)).toEqual([1, 2, 3, 4]);
});

test.each([
  ["Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36", "Chrome 140 on Linux"],
  ["Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 Edg/141.0", "Edge 141 on Windows"],
  ["Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Safari/605.1.15", "Safari 18 on macOS"],
  ["Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox 140 on Linux"],
  ["curl/8", null],
])("a browser that calls itself %s is %s", (agent, expected) => {
  expect(browserName(agent)).toBe(expected);
});

test("a queue that stands still, a failed check and a missing sweeper are problems", () => {
  const queue = { name: "nodes", length: 0, probe_at: null };
  const good = { checks: { database: "ok" }, queues: [{ ...queue, is_moving: true }, { ...queue, is_moving: null }], sweeper: null };
  expect(problemsOf(good)).toBe(0);
  expect(problemsOf({ checks: { database: "away" }, queues: [{ ...queue, is_moving: false }], sweeper: { since: null, seen_at: null, is_running: false } })).toBe(3);
});

test("an action is found by its words, in any order and case", () => {
  expect(hasWords("Select the run, or not", "RUN select")).toBe(true);
  expect(hasWords("Select the run, or not", "cancel")).toBe(false);
  expect(hasWords("anything", "")).toBe(true);
});
