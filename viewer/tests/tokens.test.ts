import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import { NODE_LOOKS } from "../src/store/node-states";

type Rgb = [number, number, number];

const css = readFileSync(new URL("../src/ui/tokens.css", import.meta.url), "utf8");
const [lightBlock = "", darkBlock = "", contrastBlock = "", darkContrastBlock = ""] = css.split(/^}$/m);
const themes = {
  light: tokensOf(lightBlock),
  dark: tokensOf(darkBlock),
  "high contrast": tokensOf(contrastBlock),
  "dark high contrast": tokensOf(darkContrastBlock),
};
const THEMES = [
  ["light", 4.5, 3],
  ["dark", 4.5, 3],
  ["high contrast", 7, 4.5],
  ["dark high contrast", 7, 4.5],
] as const;
const TONES = ["neutral", "muted", "accent", "amber", "violet", "green", "red"];

function tokensOf(text: string): Record<string, Rgb> {
  const found = text.matchAll(/--([\w-]+): oklch\(([\d.]+) ([\d.]+) ([\d.]+)\)/g);
  const colors = [...found].map(([, name = "", l, c, h]): [string, Rgb] => [name, toRgb(Number(l), Number(c), Number(h))]);
  return Object.fromEntries(colors);
}

/** Convert OKLCH to linear sRGB, cut to what a screen can show. */
function toRgb(l: number, c: number, hue: number): Rgb {
  const [a, b] = [c * Math.cos((hue * Math.PI) / 180), c * Math.sin((hue * Math.PI) / 180)];
  const [x, y, z] = [l + 0.3963377774 * a + 0.2158037573 * b, l - 0.1055613458 * a - 0.0638541728 * b, l - 0.0894841775 * a - 1.291485548 * b].map((each) => each ** 3) as Rgb;
  const linear: Rgb = [4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z, -1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z, -0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z];
  return linear.map((each) => Math.min(1, Math.max(0, each))) as Rgb;
}

function contrast(first: Rgb | undefined, second: Rgb | undefined): number {
  const luminance = (color: Rgb | undefined): number => (color ? 0.2126 * color[0] + 0.7152 * color[1] + 0.0722 * color[2] : Number.NaN);
  const [low, high] = [luminance(first), luminance(second)].sort((a, b) => a - b) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

// T124
test.each(THEMES)("texts of the %s theme have a contrast of %d on every surface", (name, least) => {
  const tokens = themes[name];
  for (const surface of ["surface", "panel", "raised"]) {
    for (const text of ["ink", "ink-2"]) expect(contrast(tokens[text], tokens[surface]), `${text} on ${surface}`).toBeGreaterThanOrEqual(least);
  }
  for (const surface of ["surface", "panel", "accent-soft"]) {
    expect(contrast(tokens.accent, tokens[surface]), `accent on ${surface}`).toBeGreaterThanOrEqual(least);
    expect(contrast(tokens.red, tokens.surface)).toBeGreaterThanOrEqual(least);
  }
  for (const tone of TONES) {
    expect(contrast(tokens[tone], tokens.surface), `${tone} on surface`).toBeGreaterThanOrEqual(least);
    expect(contrast(tokens[tone], tokens.raised), `${tone} on raised`).toBeGreaterThanOrEqual(least);
    expect(contrast(tokens[tone], tokens[`${tone}-soft`]), `${tone} on its soft tone`).toBeGreaterThanOrEqual(least);
    expect(contrast(tokens["ink-2"], tokens[`${tone}-soft`]), `ink-2 on soft ${tone}`).toBeGreaterThanOrEqual(least);
  }
});

// T124
test.each(THEMES)("graphics of the %s theme have enough contrast", (name, _, least) => {
  const tokens = themes[name];
  for (const graphic of ["line-strong", "focus", ...TONES]) {
    for (const surface of ["surface", "panel"]) expect(contrast(tokens[graphic], tokens[surface]), `${graphic} on ${surface}`).toBeGreaterThanOrEqual(least);
  }
});

test("the block of each theme names its own colours", () => {
  expect([lightBlock, darkBlock, contrastBlock, darkContrastBlock].map((block) => block.match(/^:root.*(?= \{)/gm)?.at(-1))).toEqual([
    ':root[data-theme="light"]',
    ':root[data-theme="dark"]',
    ':root[data-contrast="more"]',
    ':root[data-theme="dark"][data-contrast="more"]',
  ]);
  for (const tokens of Object.values(themes)) expect(Object.keys(tokens)).toEqual(Object.keys(themes.light));
});

// T124
test("states that must not be confused differ in icon and in border", () => {
  for (const [one, other] of [["failed", "handled"], ["done", "running"]] as const) {
    expect(NODE_LOOKS[one].icon).not.toBe(NODE_LOOKS[other].icon);
  }
  expect(NODE_LOOKS.failed.border).not.toBe(NODE_LOOKS.handled.border);
});
