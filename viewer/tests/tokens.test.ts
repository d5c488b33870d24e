import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import { NODE_LOOKS } from "../src/store/node-states";
import { RUN_LOOKS, type Border, type Look } from "../src/store/run-status";

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


type Matrix = readonly [Rgb, Rgb, Rgb];

/** How colours look to dichromats, for linear sRGB: Machado, Oliveira and Fernandes (2009), severity 1. */
const COLOUR_BLINDNESSES: Readonly<Record<string, Matrix>> = {
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};
const LINEAR_TO_XYZ: Matrix = [[0.4123908, 0.3575843, 0.1804808], [0.212639, 0.7151687, 0.0721923], [0.0193308, 0.1191948, 0.9505322]];
const WHITE: Rgb = [0.9504559, 1, 1.0890578]; // D65
const LEAST_DIFFERENCE = 10;

function times(matrix: Matrix, [x, y, z]: Rgb): Rgb {
  return matrix.map(([a, b, c]) => a * x + b * y + c * z) as Rgb;
}

/** Convert linear sRGB to CIELAB. */
function toLab(color: Rgb): Rgb {
  const [x, y, z] = times(LINEAR_TO_XYZ, color).map((each, at) => {
    const share = each / (WHITE[at] ?? 1);
    return share > (6 / 29) ** 3 ? Math.cbrt(share) : share / (3 * (6 / 29) ** 2) + 4 / 29;
  }) as Rgb;
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

/** Return the difference CIEDE2000 of two colours in CIELAB. */
function difference([l1, a1, b1]: Rgb, [l2, a2, b2]: Rgb): number {
  const radians = (degrees: number): number => (degrees * Math.PI) / 180;
  const meanC = (Math.hypot(a1, b1) + Math.hypot(a2, b2)) / 2;
  const stretch = 1 + 0.5 * (1 - Math.sqrt(meanC ** 7 / (meanC ** 7 + 25 ** 7)));
  const [c1, c2] = [Math.hypot(a1 * stretch, b1), Math.hypot(a2 * stretch, b2)];
  const hue = (a: number, b: number): number => (a === 0 && b === 0 ? 0 : ((Math.atan2(b, a) * 180) / Math.PI + 360) % 360);
  const [h1, h2] = [hue(a1 * stretch, b1), hue(a2 * stretch, b2)];
  const isGrey = c1 * c2 === 0;
  const turn = isGrey ? 0 : ((h2 - h1 + 540) % 360) - 180;
  const deltaH = 2 * Math.sqrt(c1 * c2) * Math.sin(radians(turn) / 2);
  const h = isGrey ? h1 + h2 : (h1 + turn / 2 + 360) % 360;
  const [l, c] = [(l1 + l2) / 2, (c1 + c2) / 2];
  const t = 1 - 0.17 * Math.cos(radians(h - 30)) + 0.24 * Math.cos(radians(2 * h)) + 0.32 * Math.cos(radians(3 * h + 6)) - 0.2 * Math.cos(radians(4 * h - 63));
  const rotation = -2 * Math.sqrt(c ** 7 / (c ** 7 + 25 ** 7)) * Math.sin(radians(60 * Math.exp(-(((h - 275) / 25) ** 2))));
  const lightness = (l2 - l1) / (1 + (0.015 * (l - 50) ** 2) / Math.sqrt(20 + (l - 50) ** 2));
  const chroma = (c2 - c1) / (1 + 0.045 * c);
  const angle = deltaH / (1 + 0.015 * c * t);
  return Math.sqrt(lightness ** 2 + chroma ** 2 + angle ** 2 + rotation * chroma * angle);
}

/** Return the least difference of two tones of a theme to a reader with one of the colour blindnesses. */
function leastDifference(tokens: Record<string, Rgb>, one: string, other: string): number {
  const differences = Object.values(COLOUR_BLINDNESSES).map((matrix) => {
    const [first, second] = [one, other].map((tone) => toLab(times(matrix, tokens[tone] ?? [0, 0, 0]).map((each) => Math.min(1, Math.max(0, each))) as Rgb)) as [Rgb, Rgb];
    return difference(first, second);
  });
  return Math.min(...differences);
}

test.each([ // G. Sharma, W. Wu, E. N. Dalal (2005), table 1
  [[50, 2.6772, -79.7751], [50, 0, -82.7485], 2.0425],
  [[50, -1, 2], [50, 0, 0], 2.3669],
  [[50, 2.5, 0], [73, 25, -18], 27.1492],
  [[60.2574, -34.0099, 36.2677], [60.4626, -34.1751, 39.4387], 1.2644],
  [[2.0776, 0.0795, -1.135], [0.9033, -0.0636, -0.5514], 0.9082],
] as [Rgb, Rgb, number][])("the difference of %j and %j is that of the published table", (one, other, published) => {
  expect(difference(one, other)).toBeCloseTo(published, 4);
  expect(difference(other, one)).toBeCloseTo(published, 4);
});

const LOOKS = { step: NODE_LOOKS, run: RUN_LOOKS };
const CASES = THEMES.flatMap(([name]) => (["step", "run"] as const).map((kind) => [name, kind] as const));

/** Return the border as it is seen without colours: "none" is a line of one pixel too. */
function shapeOf(border: Border): Border {
  return border === "none" ? "thin" : border;
}

// T124
test.each(CASES)("in the %s theme a reader with a colour blindness tells any two states of a %s apart", (name, kind) => {
  const looks = Object.entries<Look>(LOOKS[kind]);
  const confused = looks.flatMap(([one, first], at) =>
    looks.slice(at + 1).flatMap(([other, second]) => {
      const differsInShape = first.icon !== second.icon && shapeOf(first.border) !== shapeOf(second.border);
      const value = leastDifference(themes[name], first.tone, second.tone);
      return differsInShape || value >= LEAST_DIFFERENCE ? [] : [`${one}/${other}: ${value.toFixed(1)}`];
    }),
  );
  expect(confused).toEqual([]);
});

// T124
test("states that must not be confused differ in icon and in border, whatever their colours are", () => {
  for (const [one, other] of [["failed", "handled"], ["done", "running"]] as const) {
    expect(NODE_LOOKS[one].icon).not.toBe(NODE_LOOKS[other].icon);
    expect(shapeOf(NODE_LOOKS[one].border)).not.toBe(shapeOf(NODE_LOOKS[other].border));
  }
});
