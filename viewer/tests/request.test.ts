import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

import { apiUrl, basePath, safeTarget } from "../src/api/base";
import { ApiError, newIdempotencyKey, onSignedOut, request } from "../src/api/request";
import { serverNow } from "../src/api/server-clock";
import { EventSplitter } from "../src/api/server-sent-events";

interface Sent {
  url: string;
  init: RequestInit & { headers: Headers };
}

const sent: Sent[] = [];
let reply: () => Response = () => new Response("{}");

beforeEach(() => {
  sent.length = 0;
  vi.stubGlobal("document", { baseURI: "http://host/easel/ui/" });
  vi.stubGlobal("fetch", (url: string, init: Sent["init"]) => {
    sent.push({ url, init });
    return Promise.resolve(reply());
  });
});
afterEach(() => vi.unstubAllGlobals());

async function failureOf(answer: () => Response): Promise<ApiError> {
  reply = answer;
  return request("/runs").then(
    () => expect.fail("the request has succeeded"),
    (error: unknown) => error as ApiError,
  );
}

describe("a request", () => {
  test("names the base path, its query, and that it comes from a page", async () => {
    reply = () => Response.json({ runs: [] });

    expect(await request("/runs", { query: { q: "a b", before: undefined, status: "" } })).toEqual({ runs: [] });

    expect(sent[0]?.url).toBe("/easel/api/v1/runs?q=a+b");
    expect(sent[0]?.init.headers.get("X-Easel-Viewer")).toBe("1");
    expect(sent[0]?.init.credentials).toBe("same-origin");
  });

  test("brings the time of the server: of its body, or of its header", async () => {
    const [header, body] = [Date.parse("2040-01-01T00:00:00Z"), Date.parse("2040-01-01T00:00:30Z")];
    reply = () => Response.json({}, { headers: { Date: "Sun, 01 Jan 2040 00:00:00 GMT" } });
    await request("/viewer");
    expect(Math.abs(serverNow() - header)).toBeLessThan(10_000);

    reply = () => Response.json({ now: body });
    await request("/runs");
    expect(Math.abs(serverNow() - body)).toBeLessThan(10_000);
  });

  test("that changes something has its idempotency key and a JSON body", async () => {
    reply = () => new Response(null, { status: 204 });

    expect(await request("/runs/cancel", { method: "POST", body: { ids: [] }, idempotencyKey: "k" })).toBeNull();

    expect(sent[0]?.init.headers.get("Idempotency-Key")).toBe("k");
    expect(sent[0]?.init.body).toBe('{"ids":[]}');
  });

  test("that is refused fails with code, message, details and the time to wait", async () => {
    const body = { code: "too_many", message: "Wait.", details: { field: "q" } };
    const failure = await failureOf(() => Response.json(body, { status: 429, headers: { "Retry-After": "7" } }));

    expect(failure).toMatchObject({ status: 429, code: "too_many", message: "Wait.", details: { field: "q" }, retryAfter: 7 });
  });

  test("that a proxy answers with HTML fails with its status", async () => {
    expect(await failureOf(() => new Response("<html>", { status: 502 }))).toMatchObject({ status: 502, message: "The API answered with status 502." });
    expect(await failureOf(() => new Response("<html>"))).toMatchObject({ code: "not_json" });
  });

  test("without an answer is unreachable, and one that is aborted is not", async () => {
    const failing = (): Response => {
      throw new TypeError("network");
    };
    expect(await failureOf(failing)).toMatchObject({ status: 0, code: "unreachable" });
    const aborter = new AbortController();
    aborter.abort();
    reply = failing;
    await expect(request("/runs", { signal: aborter.signal })).rejects.not.toBeInstanceOf(ApiError);
  });

  test("that is a 401 reports the end of the sign-in, but not while signing in", async () => {
    let times = 0;
    const stop = onSignedOut(() => times++);
    await failureOf(() => Response.json({ code: "unauthorized", message: "" }, { status: 401 }));
    expect(times).toBe(1);
    await request("/viewer/session", { isSignIn: true }).catch(() => undefined);
    stop();
    await failureOf(() => Response.json({}, { status: 401 }));

    expect(times).toBe(1);
  });
});

test("idempotency keys differ", () => {
  expect(newIdempotencyKey()).toMatch(/^[0-9a-f]{32}$/);
  expect(newIdempotencyKey()).not.toBe(newIdempotencyKey());
});

test("addresses are below the base path", () => {
  expect(basePath("http://host/ui/")).toBe("/");
  expect(apiUrl("/runs", {}, "/")).toBe("/api/v1/runs");
  expect(apiUrl("/runs", { limit: 0 }, "/easel")).toBe("/easel/api/v1/runs?limit=0");
});

// T135
describe("the target of a sign-in", () => {
  const target = (to: string | undefined): string => safeTarget(to, "http://host");

  test.each(["//evil/x", "/\\evil", "http://evil/", "javascript:alert(1)", "/%2F..//evil", "runs", "/a\n/b", "/login?to=/x", "/", "/..//evil/x", undefined])(
    "%s is the list of runs or a path of this host",
    (to) => {
      expect(target(to)).toMatch(/^\/(runs$|%2F)/);
    },
  );

  test("is a page of ours with its search", () => {
    expect(target("/runs/0a?view=log&step=1")).toBe("/runs/0a?view=log&step=1");
  });
});

describe("server-sent events", () => {
  const TEXT = 'event: hello\ndata: {"a":1}\n\n: heartbeat\n\nevent: event\nid: 4.2\ndata: x\ndata: y\n\n';

  test("are the same wherever the text is split", () => {
    const whole = new EventSplitter().feed(TEXT);
    expect(whole).toEqual([
      { name: "hello", id: null, data: '{"a":1}' },
      { name: "event", id: "4.2", data: "x\ny" },
    ]);
    for (let at = 0; at <= TEXT.length; at++) {
      const splitter = new EventSplitter();
      expect([...splitter.feed(TEXT.slice(0, at)), ...splitter.feed(TEXT.slice(at))]).toEqual(whole);
    }
  });

  test("that are not whole wait for their rest", () => {
    expect(new EventSplitter().feed("event: a\ndata: 1\n")).toEqual([]);
  });
});
