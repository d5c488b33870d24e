/** Following a run through a server that is slow, cuts connections, or is not looked at: with a clock of the test. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { LiveRun, type LiveStatus } from "../src/live/live-run";
import { RunStore } from "../src/store/run-store";
import { Spaced } from "../src/ui/spaced";
import { id } from "./run-files";

const RUN = id(1);
const STREAM = id(2);
const TEXT = "One two three four five six seven eight nine ten.";

type Answer = (url: URL, signal: AbortSignal) => Response | Promise<Response>;

/** A server with a run that writes a word each second; its live stream is what a test makes of it. */
class FakeServer {
  readonly requests: URL[] = [];
  readonly open = new Set<AbortSignal>();
  live: Answer = (_, signal) => new Promise((_, fail) => signal.addEventListener("abort", () => fail(new Error("aborted"))));
  wordMs = 1_000;
  private readonly began = performance.now();

  get written(): string {
    return TEXT.split(/(?<= )/).slice(0, Math.floor((performance.now() - this.began) / this.wordMs)).join("");
  }

  get status(): string {
    return this.written === TEXT ? "succeeded" : "running";
  }

  readonly fetch = (address: string, { signal = new AbortController().signal }: { signal?: AbortSignal }): Promise<Response> => {
    const url = new URL(address, "http://h");
    this.requests.push(url);
    return Promise.resolve(this.answer(url, signal));
  };

  private answer(url: URL, signal: AbortSignal): Response | Promise<Response> {
    const path = url.pathname.replace(`/api/v1/runs/${RUN}`, "");
    const now = 1_000_000 + performance.now();
    if (path === "/live") return this.live(url, signal);
    if (path === "/graph") return json({ digest: "", drawn: false, nodes: [], edges: [], size: null, components: [] });
    if (path === "/activations") return json({ now, revision: 1, columns: ["id"], strings: [], rows: [], next: null, total: 0 });
    if (path === "/model_calls") return json({ now, calls: [], next: null });
    if (path === "/events") return json(this.events(url.searchParams.get("after") ?? "0"));
    if (path === "/api/v1/runs/states") return json({ now, runs: [{ id: RUN, status: this.status }] });
    return json({
      id: RUN, status: this.status, agent_id: null, version_id: null, session_id: null, error: null, request: { query: "hi" }, usage: {}, now,
      created_at: "2026-01-01T00:00:00Z", started_at: null, finished_at: null, origin: null, may: {}, nodes: {}, activations_total: 1, revision: 1,
    });
  }

  private events(after: string): unknown {
    const from = Number(after.split(".")[1] ?? 0);
    const text = this.written.slice(from);
    const message = { event: "message", turn: STREAM, offset: from, data: { content: text } };
    return { events: text ? [message] : [], position: text ? `1.${from + text.length}` : after, status: this.status };
  }

  /** Return a live stream that goes on after a position, until `cutAfter` milliseconds have passed. */
  stream(url: URL, signal: AbortSignal, cutAfter: number | null): Response {
    let sent = Number((url.searchParams.get("after") ?? "0").split(".")[1] ?? 0);
    this.open.add(signal);
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        const send = (name: string, data: unknown, position?: string): void =>
          controller.enqueue(new TextEncoder().encode(`event: ${name}\n${position === undefined ? "" : `id: ${position}\n`}data: ${JSON.stringify(data)}\n\n`));
        send("state", { now: 1_000_000 + performance.now(), revision: 1, status: this.status });
        const end = (): void => {
          clearInterval(timer);
          this.open.delete(signal);
        };
        signal.addEventListener("abort", () => {
          if (this.open.has(signal)) controller.error(new Error("aborted"));
          end();
        });
        const timer = setInterval(() => {
          const text = this.written.slice(sent);
          if (text) send("delta", { stream: STREAM, node_id: "LLM:0", offset: sent, text }, `1.${sent + text.length}`);
          sent += text.length;
          if (this.status !== "succeeded") return;
          end();
          send("bye", { status: "succeeded", reason: "over" });
          controller.close();
        }, 100);
        if (cutAfter !== null)
          setTimeout(() => {
            if (this.open.has(signal)) controller.error(new Error("cut"));
            end();
          }, cutAfter);
      },
    });
    return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  }
}

function json(value: unknown): Response {
  return new Response(JSON.stringify(value), { headers: { "Content-Type": "application/json" } });
}

let page: { hidden: boolean; baseURI: string; listeners: Set<() => void>; show: (isShown: boolean) => void };
let server: FakeServer;
let store: RunStore;
let run: LiveRun;
let modes: LiveStatus["mode"][];

beforeEach(() => {
  vi.useFakeTimers();
  const listeners = new Set<() => void>();
  page = {
    hidden: false,
    baseURI: "http://h/ui/",
    listeners,
    show(isShown) {
      this.hidden = !isShown;
      listeners.forEach((listener) => listener());
    },
  };
  vi.stubGlobal("document", Object.assign(page, {
    addEventListener: (_: string, listener: () => void) => listeners.add(listener),
    removeEventListener: (_: string, listener: () => void) => listeners.delete(listener),
  }));
  server = new FakeServer();
  vi.stubGlobal("fetch", server.fetch);
  store = new RunStore();
  run = new LiveRun(RUN, store);
  modes = [];
  run.subscribe(() => {
    const { mode } = run.getStatus();
    if (modes.at(-1) !== mode) modes.push(mode);
  });
});

afterEach(() => {
  run.stop();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const textShown = (): string => store.getState().streams.map((stream) => stream.text).join("|");
const statusShown = (): string | undefined => store.getState().header?.status;

test("a stream that a proxy holds back is followed by polling within 12 s", async () => {
  // T047, F15b
  run.start();
  await vi.advanceTimersByTimeAsync(12_000);

  expect(modes).toEqual(["stream", "polling", "off"]);
  expect(textShown()).toBe(TEXT);
  expect(statusShown()).toBe("succeeded");
});

test("a stream that a proxy cuts every 5 s is neither wrong nor doubled, and the page says nothing of it", async () => {
  // T047, F15c
  server.live = (url, signal) => server.stream(url, signal, 5_000);
  run.start();
  for (let second = 1; second <= 9; second++) {
    await vi.advanceTimersByTimeAsync(1_000);
    expect(TEXT.startsWith(textShown())).toBe(true);
  }
  await vi.advanceTimersByTimeAsync(4_000);

  expect(textShown()).toBe(TEXT);
  expect(server.requests.filter((url) => url.pathname.endsWith("/live")).length).toBeGreaterThan(1);
  expect(modes).toEqual(["stream", "off"]);
});

test("a run whose streams are cut again and again is polled for a while, which is the one notice", async () => {
  server.live = (url, signal) => server.stream(url, signal, 700);
  run.start();
  await vi.advanceTimersByTimeAsync(14_000);

  expect(textShown()).toBe(TEXT);
  expect(modes).toEqual(["stream", "polling", "off"]);
});

test("a hidden tab closes its stream after 20 s, and is up to date within 1 s when it is shown", async () => {
  // T048
  server.wordMs = 3_000;
  server.live = (url, signal) => server.stream(url, signal, null);
  run.start();
  await vi.advanceTimersByTimeAsync(2_000);
  expect(server.open.size).toBe(1);
  page.show(false);
  await vi.advanceTimersByTimeAsync(1_000);
  page.show(true);
  page.show(false);
  await vi.advanceTimersByTimeAsync(19_500); // since it is hidden again
  expect(server.open.size).toBe(1);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(server.open.size).toBe(0);
  await vi.advanceTimersByTimeAsync(9_500);
  expect(server.open.size).toBe(0);

  page.show(true);
  await vi.advanceTimersByTimeAsync(1_000);

  expect(textShown()).toBe(server.written);
  expect(statusShown()).toBe(server.status);
});

test("a tab that is hidden from the beginning opens no stream", async () => {
  server.live = (url, signal) => server.stream(url, signal, null);
  page.hidden = true;
  run.start();
  await vi.advanceTimersByTimeAsync(60_000);

  expect(server.requests.some((url) => url.pathname.endsWith("/live"))).toBe(false);
  expect(statusShown()).toBe("succeeded");
});

test("states are said at once, then at most once in 5 s, each by its newest text", async () => {
  // T127
  const said: [number, string][] = [];
  const spaced = new Spaced(5_000, (text) => said.push([performance.now() - began, text]));
  const began = performance.now();
  for (let step = 0; step < 120; step++) {
    spaced.offer("shown", `${step} steps.`);
    if (step === 119) spaced.offer("run", "The run is over.");
    await vi.advanceTimersByTimeAsync(100);
  }
  await vi.advanceTimersByTimeAsync(10_000);

  expect(said.map(([at]) => at)).toEqual([0, 5_000, 10_000, 15_000]);
  expect(said.at(-1)?.[1]).toBe("119 steps. The run is over.");
});
