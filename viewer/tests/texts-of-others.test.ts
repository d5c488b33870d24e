import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { afterAll, beforeAll, expect, test, vi } from "vitest";

import { basePath } from "../src/api/base";
import { runSearch } from "../src/run/run-search";
import { bytes, duration } from "../src/ui/format";
import { HasServerFiles } from "../src/ui/has-server-files";
import { checkedUrl, Markdown } from "../src/ui/markdown";
import { isTooHeavy } from "../src/ui/markdown-limits";
import { visibleName, visibleText } from "../src/ui/visible-text";
import { processorTime } from "./processor-time";

// T059
test.each([
  ["https://example.com/a", true], ["http://example.com", true], ["mailto:a@b.c", true], ["HTTPS://EXAMPLE.COM", true],
  ["data:image/png;base64,AAAA", true], ["javascript:alert(1)", false], ["JaVaScRiPt:alert(1)", false],
  ["java\tscript:alert(1)", false], [" javascript:alert(1)", false], ["vbscript:x", false], ["data:text/html,x", false],
  ["data:image/svg+xml;base64,AAAA", false], ["//example.com/x", false], ["/relative", false], ["", false],
])("the address %j is allowed: %s", (url, isAllowed) => {
  expect(checkedUrl(url)).toBe(isAllowed ? url : "");
});

test.each([
  ["a\u202eb", "a⟨U+202E⟩b"], ["a\u0000b", "a⟨U+0000⟩b"], ["a\u200bb\ufeff", "a⟨U+200B⟩b⟨U+FEFF⟩"], ["a\tb\nc\r\nd", "a\tb\nc\nd"], ["ü 👋 שלום 👨‍👩‍👧", "ü 👋 שלום 👨‍👩‍👧"],
  ["a\u00adb\u2028\u3164", "a⟨U+00AD⟩b⟨U+2028⟩⟨U+3164⟩"], ["a\u{e0041}", "a⟨U+E0041⟩"], ["🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}", "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}"],
])("what would deceive a reader in %j is visible", (text, expected) => {
  expect(visibleText(text)).toBe(expected);
});

test("a name has one line and an end", () => {
  expect(visibleName("a\n  b\u202e")).toBe("a b⟨U+202E⟩");
  expect(visibleName("x".repeat(300))).toBe(`${"x".repeat(200)}…`);
  expect(visibleName("x".repeat(1_048_576), 40)).toBe(`${"x".repeat(40)}…`);
});

// T059
test.each([
  [{ view: "time", step: "0".repeat(32), tab: "raw", only: "failed" }, { view: "time", step: "0".repeat(32), tab: "raw", only: "failed" }],
  [{ view: "film", step: "../x", tab: "", only: "all", other: "x" }, {}],
  [{ step: "A".repeat(32) }, {}],
])("search parameters %o are read as %o", (search, expected) => {
  expect(runSearch(search)).toEqual(expected);
});

test.each([["http://h/ui/", "/"], ["http://h/easel/ui/", "/easel"], ["http://h/a/b/ui/assets/x.js", "/a/b"]])("the base path of %s is %s", (uri, path) => {
  expect(basePath(uri)).toBe(path);
});

test.each([[null, "–"], [0, "0 ms"], [0.4, "<1 ms"], [999, "999 ms"], [1234, "1.23 s"], [65_000, "1 min 5 s"], [3_600_000, "1 h 0 min"], [200_000_000, "2 d 7 h"]])("%s milliseconds are %s", (ms, text) => {
  expect(duration(ms)).toBe(text);
});

test.each([[12, "12 B"], [1536, "1.5 KiB"], [3 * 1024 * 1024, "3.0 MiB"]])("%i bytes are %s", (count, text) => {
  expect(bytes(count)).toBe(text);
});

test.each([
  ["a list of 50,000 items", "- a\n".repeat(50_000)], ["a list of 1,000 items", "- a\n".repeat(1_000)], ["1,000 headings", "a\n-\n".repeat(1_000)],
  ["quotes in quotes", ">".repeat(5_000)], ["lists in lists on one line", "- ".repeat(100)], ["lists in lists", Array.from({ length: 80 }, (_, depth) => `${" ".repeat(2 * depth)}- a`).join("\n")],
  ["emphasis", "**a".repeat(3_000)], ["links", "[a](".repeat(5_000)], ["columns", "|a".repeat(5_000)], ["addresses", "a@a.".repeat(5_000)], ["many lines", "a  \n".repeat(3_000)],
  ["a long text", "a ".repeat(60_000)],
])("%s are too much Markdown", (_, text) => {
  expect(isTooHeavy(text)).toBe(true);
});

test.each([
  ["a short answer", "# Title\n\n- **one**\n- two\n\n> quote\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"], ["a long answer", `${"Some words of an answer, with a [link](https://example.com).\n\n".repeat(300)}`],
  ["a program", `\`\`\`python\n${"    if a < b and c[0] == d:\n        return a\n".repeat(200)}\`\`\``], ["one long line", "a ".repeat(40_000)], ["nothing", ""],
])("%s is drawn as Markdown", (_, text) => {
  expect(isTooHeavy(text)).toBe(false);
});

test("the check of a text takes a moment, whatever is in it", () => {
  const began = processorTime();
  for (const text of [" ".repeat(100_000), "1".repeat(100_000), "\t>".repeat(33_000), "#".repeat(100_000)]) isTooHeavy(text);
  expect(processorTime() - began).toBeLessThan(2_000);
});

beforeAll(() => vi.stubGlobal("document", { baseURI: "http://h/ui/" }));
afterAll(() => vi.unstubAllGlobals());

const drawn = (text: string): string => renderToStaticMarkup(createElement(Markdown, { text }));
const FILE = "0123456789abcdef0123456789abcdef";

test.each(["see www.example.com.", "mail a.b@example.com, please", "www.example.com/a_b", "a@b.co and www.b.co", "xmpp:a@b.co"])("%j is no link", (text) => {
  expect(drawn(text)).toContain(`<p>${text}</p>`);
  expect(drawn(text)).not.toContain("<a");
});

// T059
test.each([
  ["see https://example.com/a.", "https://example.com/a"], ["<https://example.com>", "https://example.com"], ["<a@b.co>", "mailto:a@b.co"],
  ["[us](mailto:a@b.co)", "mailto:a@b.co"], ["[www.example.com](http://www.example.com)", "http://www.example.com"], ["[a@b.co](mailto:a@b.co)", "mailto:a@b.co"],
])("%j is a link to %s", (text, href) => {
  expect(drawn(text)).toContain(`<a href="${href}" target="_blank" rel="noopener noreferrer nofollow">`);
});

test("pictures of this API are shown, those of other hosts are links, and none are loaded for a run out of a file", () => {
  const own = `![chart](/api/v1/documents/artifact/${FILE}.png)`;
  expect(drawn(own)).toContain(`<img src="/api/v1/documents/artifact/${FILE}.png" alt="chart"`);
  expect(drawn("![chart](https://other.example/a.png)")).not.toContain("<img");
  expect(drawn(`![x](/api/v1/documents/artifact/${FILE}.svg)`)).not.toContain("<img");
  expect(drawn(`[paper](/api/v1/agents/attachments/${FILE}/download)`)).toContain(`<a href="/api/v1/agents/attachments/${FILE}/download" download="">paper</a>`);
  const ofFile = renderToStaticMarkup(createElement(HasServerFiles, { value: false }, createElement(Markdown, { text: own })));
  expect(ofFile).not.toContain("<img");
  expect(ofFile).toContain("chart");
});
