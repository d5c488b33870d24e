/** What was typed and not sent: kept for the reader who typed it, and for nobody else. */
import { beforeEach, expect, it } from "vitest";

import { forgetKept, keep, keepFor, valueOf } from "../src/ui/kept";

beforeEach(() => {
  forgetKept();
  keepFor("ada");
  keep("form", { name: "Ada" });
});

it("is still there when the same reader signs in again", () => {
  keepFor("ada");
  expect(valueOf("form", null)).toEqual({ name: "Ada" });
});

it("is gone when another reader signs in", () => {
  keepFor("grace");
  expect(valueOf("form", null)).toBeNull();
});

it("is gone after it was sent, and after signing out", () => {
  keep("other", "x");
  forgetKept("form");
  expect([valueOf("form", null), valueOf("other", "")]).toEqual([null, "x"]);
  forgetKept();
  expect(valueOf("other", "")).toBe("");
});
