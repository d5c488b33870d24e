import { expect, test } from "vitest";

import { agentListSearch, agentSearch } from "../src/agents/agent-search";
import { beginFields, startInputs, webhookInputs } from "../src/agents/begin-inputs";
import { placeOf } from "../src/api/agents";
import { ApiError } from "../src/api/request";
import { versionSearch } from "../src/versions/version-search";

const ID = "0123456789abcdef0123456789abcdef";

test.each([
  [agentListSearch, { q: " sales ", tag: 7, other: "x" }, { q: "sales" }],
  [agentListSearch, { q: "", tag: "support" }, { tag: "support" }],
  [agentSearch, { version: ID, node: "LLM:A" }, { version: ID, node: "LLM:A" }],
  [agentSearch, { version: "latest", node: "" }, {}],
  [versionSearch, { a: ID, b: "draft", layout: "1", node: "x" }, { a: ID, b: "draft", layout: "1", node: "x" }],
  [versionSearch, { a: "../x", b: 1, layout: "yes" }, {}],
])("address has what is valid of its parameters", (read, given, valid) => {
  expect(read(given)).toEqual(valid);
});

test("fields of Begin become inputs with their types", () => {
  const fields = beginFields({ inputs: { name: { name: "Your name", type: "line" }, level: { type: "options", options: ["a", 1], optional: true }, odd: null }, mode: "conversational" });

  expect(fields.map(({ key, name, type, isOptional, options }) => [key, name, type, isOptional, options])).toEqual([
    ["name", "Your name", "line", false, []],
    ["level", "level", "options", true, ["a"]],
    ["odd", "odd", "line", false, []],
  ]);
  expect(startInputs(fields, { name: "Ada" })).toEqual({ name: { name: "Your name", type: "line", value: "Ada" } });
  expect(startInputs(fields, {})).toBeUndefined();
  expect(beginFields({})).toEqual([]);
});

test.each([
  ['{"text": "x"}', { inputs: { body: { value: { text: "x" } } } }],
  [" ", {}],
  ["[1]", null],
  ["{", null],
])("body of a webhook %s becomes inputs", (text, inputs) => {
  expect(webhookInputs(text)).toEqual(inputs);
});

test("place of an error is that of its details", () => {
  expect(placeOf(new ApiError(400, "invalid", "no", { line: 2, column: 5 }))).toEqual({ line: 2, column: 5 });
  expect(placeOf(new ApiError(400, "invalid", "no"))).toBeNull();
  expect(placeOf(new Error("x"))).toBeNull();
});
