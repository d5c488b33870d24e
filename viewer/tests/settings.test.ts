import { afterEach, expect, test, vi } from "vitest";

const AT = Date.parse("2026-03-29T01:30:05.007Z"); // in the hour that Berlin skips

afterEach(() => {
  vi.unstubAllGlobals();
  vi.resetModules();
});

function withStorage(stored: Record<string, string>): Record<string, string> {
  vi.stubGlobal("localStorage", {
    getItem: (key: string) => stored[key] ?? null,
    setItem: (key: string, value: string) => (stored[key] = value),
    removeItem: (key: string) => delete stored[key],
  });
  vi.stubGlobal("dispatchEvent", () => true);
  return stored;
}

test("settings that are unknown or missing are the defaults", async () => {
  withStorage({ "easel.theme": "pink", "easel.zone": "utc" });
  const { DEFAULTS, readSettings } = await import("../src/ui/settings");

  expect(readSettings()).toEqual({ ...DEFAULTS, zone: "utc" });
});

test("a default is not stored", async () => {
  const stored = withStorage({ "easel.theme": "dark" });
  const { changeSettings, readSettings } = await import("../src/ui/settings");

  changeSettings({ theme: "system", motion: "off" });

  expect(stored).toEqual({ "easel.motion": "off" });
  expect(readSettings().motion).toBe("off");
});

test("without storage the settings are the defaults, and a choice lasts as long as the page", async () => {
  vi.stubGlobal("dispatchEvent", () => true);
  vi.stubGlobal("localStorage", undefined);
  const { changeSettings, DEFAULTS, readSettings } = await import("../src/ui/settings");

  expect(readSettings()).toEqual(DEFAULTS);
  changeSettings({ density: "compact" });

  expect(readSettings().density).toBe("compact");
});

test("times are shown in UTC, and say so", async () => {
  withStorage({ "easel.zone": "utc" });
  const { clockMs, minute, moment } = await import("../src/ui/format");

  expect([moment(AT), minute(AT), clockMs(AT)]).toEqual(["2026-03-29 01:30:05 UTC", "2026-03-29 01:30 UTC", "01:30:05.007"]);
});

test("times of this computer are shown without a zone", async () => {
  withStorage({});
  const { moment } = await import("../src/ui/format");
  const at = new Date(AT);

  expect(moment(AT)).toBe(`${at.getFullYear()}-03-${at.getDate()} ${String(at.getHours()).padStart(2, "0")}:${String(at.getMinutes()).padStart(2, "0")}:05`);
});

test.each([
  [0, "0 s ago"],
  [-5000, "0 s ago"],
  [59_999, "59 s ago"],
  [60_000, "1 min ago"],
  [7_200_000, "2 h ago"],
  [47 * 3_600_000, "47 h ago"],
  [72 * 3_600_000, "3 d ago"],
])("an age of %d ms is %s", async (elapsed, expected) => {
  const { age } = await import("../src/ui/format");

  expect(age(AT - elapsed, AT)).toBe(expected);
});
