/** T112: what ESLint refuses in which folder. `npm run lint` applies the same rules to all sources. */
import { ESLint } from "eslint";
import { expect, test } from "vitest";

const eslint = new ESLint({
  ruleFilter: ({ ruleId }) => /^no-(restricted-|eval|new-func|implied-eval)/.test(ruleId), // those that need no types
  overrideConfig: { languageOptions: { parserOptions: { projectService: false } } },
});

test.each<[string, string, string | null]>([
  ["src/run/x.ts", 'void fetch("x");', "no-restricted-globals"],
  ["src/run/x.ts", 'void window.fetch("x");', "no-restricted-syntax"],
  ["src/run/x.ts", 'new EventSource("x");', "no-restricted-globals"],
  ["src/api/x.ts", 'void fetch("x");', null],
  ["src/store/x.ts", 'export { useState } from "react";', "no-restricted-imports"],
  ["src/store/x.ts", 'export { request } from "../api/request";', "no-restricted-imports"],
  ["src/run/x.ts", 'export { useState } from "react";', null],
  ["src/run/x.ts", 'element.innerHTML = "x";', "no-restricted-syntax"],
  ["src/api/x.ts", 'element.innerHTML = "x";', "no-restricted-syntax"],
  ["src/run/x.tsx", 'export const x = <p dangerouslySetInnerHTML={{ __html: "x" }} />;', "no-restricted-syntax"],
  ["src/run/x.ts", 'eval("x");', "no-eval"],
  ["src/run/x.ts", 'new Function("x");', "no-new-func"],
  ["src/run/x.tsx", 'export const x = <a href="/runs">x</a>;', "no-restricted-syntax"],
  ["src/run/x.ts", 'request("/api/v1/runs");', "no-restricted-syntax"],
  ["src/run/x.ts", 'request("runs");', null],
])("in %s the rule against %s is %s", async (filePath, code, rule) => {
  const [result] = await eslint.lintText(code, { filePath });

  expect(result?.messages.map((message) => message.ruleId)).toEqual(rule === null ? [] : [rule]);
});
