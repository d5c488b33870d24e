import { expect, test } from "vitest";

import { apiFilters, filtersOf, hasFilters, runListSearch, toggledStatus } from "../src/runs/run-list-search";
import { parseViews } from "../src/runs/saved-views";
import { gridOf, shownColumns } from "../src/runs/columns";

const ID = "0123456789abcdef0123456789abcdef";

// T059
test("valid filters of an address are taken over", () => {
  const search = { status: "failed,waiting", agent: ID, version: ID, conversation: ID, trouble: "1", origin: "fork", q: " words ", live: "off" };
  expect(runListSearch(search)).toEqual({ ...search, q: "words" });
});

test.each([
  [{ status: "failed,nonsense" }, { status: "failed" }],
  [{ agent: "../x", version: "1", conversation: ID.toUpperCase() }, {}],
  [{ origin: "toString", trouble: "yes", live: "on" }, {}],
  [{ from: "yesterday", to: "<b>" }, {}],
  [{ from: "2026-11-28T10:00:00+01:00" }, { from: "2026-11-28T09:00:00.000Z" }],
  [{ from: "2026-11-28", time: "hour" }, { from: "2026-11-28T00:00:00.000Z" }],
  [{ q: "x".repeat(1000) }, { q: "x".repeat(200) }],
])("filters %j become %j", (given, expected) => {
  expect(runListSearch(given)).toEqual(expected);
});

test("a span ends now, a range is sent as it is", () => {
  expect(apiFilters({ time: "hour" }, Date.parse("2026-11-28T10:00:00Z")).from).toBe("2026-11-28T09:00:00.000Z");
  expect(apiFilters({ from: "a", to: "b" }, 0)).toMatchObject({ from: "a", to: "b" });
});

test("whether rows are live is no filter", () => {
  expect(hasFilters({ live: "off" })).toBe(false);
  expect(filtersOf({ live: "off", q: "x" })).toEqual({ q: "x" });
});

test("a status is added and removed", () => {
  expect(toggledStatus({ status: "failed" }, "waiting")).toBe("failed,waiting");
  expect(toggledStatus({ status: "failed,waiting" }, "failed")).toBe("waiting");
});

test("saved views that are damaged are left out", () => {
  const stored = [{ name: "mine", search: { status: "failed", agent: "bad", live: "off" } }, { name: "", search: {} }, { name: 1 }, null, "x"];
  expect(parseViews(stored)).toEqual([{ name: "mine", search: { status: "failed" } }]);
  expect(parseViews({ name: "mine" })).toEqual([]);
});

test("columns are hidden by choice and by width, and the grid has one track for each", () => {
  expect(shownColumns([], 1440).map(({ name }) => name)).toContain("origin");
  const shown = shownColumns(["query"], 1024).map(({ name }) => name);
  expect(shown).toEqual(["started", "took", "steps", "tokens"]);
  expect(gridOf(shownColumns([], 1440), 1440, false).split(" ")).toHaveLength(3 + 8);
});
