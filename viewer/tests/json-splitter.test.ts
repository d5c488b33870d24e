import { describe, expect, test } from "vitest";

import { JsonSplitter, NotJson, parseJson } from "../src/run-file/json-splitter";

const encoder = new TextEncoder();

interface Found {
  member: string;
  element: number | null;
  value: unknown;
  text: string;
}

function split(text: string, chunkBytes = 1 << 20): Found[] {
  const bytes = encoder.encode(text);
  const splitter = new JsonSplitter();
  const found: Found[] = [];
  for (let at = 0; at < bytes.length; at += chunkBytes) {
    for (const piece of splitter.feed(bytes.subarray(at, at + chunkBytes))) {
      const value = parseJson(piece.bytes, piece.start, piece.member);
      found.push({ member: piece.member, element: piece.element, value, text: new TextDecoder().decode(bytes.subarray(piece.start, piece.end)) });
    }
  }
  splitter.finish();
  return found;
}

const DOCUMENT = {
  "a \"key\" \\": "text with } ] , : \" \\ and ü 👋",
  list: [1, "x,]", { deep: [[], {}, { y: "}" }] }, null, true, -1.5e3],
  empty: [],
  nothing: {},
  number: 12,
  flag: false,
};

describe("JSON that arrives in chunks", () => {
  test.each([1, 2, 3, 7, 64, 1 << 20])("is split into the same pieces by chunks of %i bytes", (chunkBytes) => {
    for (const space of [0, 2]) {
      const found = split(JSON.stringify(DOCUMENT, null, space), chunkBytes);

      const rebuilt: Record<string, unknown> = { empty: [] };
      for (const { member, element, value, text } of found) {
        expect(JSON.parse(text)).toEqual(value);
        if (element === null) rebuilt[member] = value;
        else {
          const list = (rebuilt[member] ??= []) as unknown[];
          expect(list.length).toBe(element);
          list.push(value);
        }
      }
      expect(rebuilt).toEqual(DOCUMENT);
    }
  });

  test("of random documents is put together again, for random chunks", () => {
    let seed = 7;
    const random = (below: number): number => (seed = (seed * 48271) % 2147483647) % below;
    const value = (depth: number): unknown => {
      const kind = random(depth > 3 ? 4 : 6);
      if (kind < 2) return random(1000) / 4;
      if (kind < 4) return String.fromCodePoint(...Array.from({ length: random(9) }, () => [34, 92, 125, 10, 228, 0x1f44b, 65][random(7)] ?? 65));
      if (kind === 4) return Array.from({ length: random(4) }, () => value(depth + 1));
      return Object.fromEntries(Array.from({ length: random(4) }, (_, at) => [`k${at}`, value(depth + 1)]));
    };
    for (let round = 0; round < 200; round++) {
      const rows = Array.from({ length: random(6) }, () => value(0));
      const found = split(JSON.stringify({ rows, other: value(0) }), 1 + random(20));

      expect(found.filter(({ member }) => member === "rows").map((each) => each.value)).toEqual(rows);
    }
  });

  test("that is cut off anywhere is refused as cut off", () => {
    const text = JSON.stringify(DOCUMENT);
    for (let length = 1; length < text.length; length++) {
      const error = errorOf(text.slice(0, length));
      expect(error, text.slice(0, length)).toBeInstanceOf(NotJson);
      expect((error as NotJson).isCutOff, text.slice(0, length)).toBe(true);
    }
  });

  test.each(["[1]", "12", '"text"', "{,}", '{"a" 1}', '{"a":1,}', '{"a":1} x', '{"a":[1,]}', '{"a":[1 2]}', '{"a":tru}', '{"a":[,]}'])(
    "that is not valid is refused: %s",
    (text) => {
      const error = errorOf(text);

      expect(error).toBeInstanceOf(NotJson);
      expect((error as NotJson).isCutOff).toBe(false);
    },
  );

  test("keeps the name of the member in which it fails", () => {
    expect((errorOf('{"events":[{"a":1},') as NotJson).member).toBe("events");
  });
});

function errorOf(text: string): unknown {
  try {
    split(text, 5);
    return null;
  } catch (error) {
    return error;
  }
}
