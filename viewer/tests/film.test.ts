import { describe, expect, test } from "vitest";

import { Row, stepOf } from "../src/run-file/rows";
import { Film, runAt, transitionsOf } from "../src/store/film";
import { FilmStore } from "../src/store/film-store";
import { cellsOf, containerProgress, density, itemIn, itemsOf, type Item } from "../src/store/items";
import { keepEqual, nodeState, summarizeNodes } from "../src/store/node-states";
import { figuresOf, heatOf } from "../src/store/overlays";
import { applyFrames, emptyRun, type Attempt, type Frame, type RunHeader, type RunState } from "../src/store/run";
import { RunStore } from "../src/store/run-store";
import type { Step } from "../src/store/steps";
import { openKeys, openParameter, runSearch } from "../src/run/run-search";
import { domainOf, domainParameter, within, zoomedBy } from "../src/run/time-domain";
import { processorTime } from "./processor-time";
import { activation, id } from "./run-files";

const NOW = 10_000;
const HEADER: RunHeader = {
  id: id(1), status: "succeeded", error: null, agentId: id(2), agentTitle: null, versionId: id(3), versionTitle: null, sessionId: id(4),
  query: null, files: [], createdAt: 0, startedAt: 0, finishedAt: 1000, origin: null, versionNumber: 1, versionDigest: null, draftDigest: null,
  usage: { promptTokens: 0, completionTokens: 0, cachedTokens: 0, calls: 0, unpricedCalls: 0, cost: {} },
};
const TIMES = { created_at: 100, not_before: 110, started_at: 150, finished_at: 300 };

function step(number: number, nodeId: string, fields: Record<string, unknown> = {}): Step {
  return stepOf(new Row(activation(number, nodeId, { ...TIMES, ...fields }), "activations", number));
}

function attempt(number: number, fields: Partial<Attempt>): Attempt {
  return { stepId: id(1), attempt: number, readyAt: 110, startedAt: 120, endedAt: 130, worker: null, endReason: "retried", code: null, error: null, nextAttemptAt: 140, tokens: null, ...fields };
}

function runOf(steps: readonly Step[], header: Partial<RunHeader> = {}, more: readonly Frame[] = []): RunState {
  return applyFrames(emptyRun(), [{ type: "header", header: { ...HEADER, ...header }, now: NOW }, { type: "steps", steps }, ...more]);
}

function statesOf(fields: Record<string, unknown>, attempts: readonly Attempt[] = [], header: Partial<RunHeader> = {}): [string, number][] {
  const run = runOf([step(1, "LLM:0", fields)], header, [{ type: "attempts", attempts }]);
  return transitionsOf(run, 0).map((each) => [each.state, each.at]);
}

describe("the transitions of a step", () => {
  test.each([
    ["done", {}, [["queued", 100], ["ready", 110], ["running", 150], ["done", 300]]],
    ["failed", { outcome: "Failed" }, [["queued", 100], ["ready", 110], ["running", 150], ["handled", 300]]],
    ["waiting for a run slot", { status: "queued", outcome: null, started_at: null, finished_at: null, not_before: null }, [["queued", 100]]],
    ["running", { status: "running", outcome: null, finished_at: null }, [["queued", 100], ["ready", 110], ["running", 150]]],
    ["waiting for a person", { status: "waiting", outcome: null }, [["queued", 100], ["ready", 110], ["running", 150], ["needs_input", 300]]],
    ["a container", { outcome: "ContainerOpened", ended_at: 900 }, [["queued", 100], ["ready", 110], ["running", 150], ["open", 300], ["done", 900]]],
    ["an open container", { status: "open", outcome: "ContainerOpened" }, [["queued", 100], ["ready", 110], ["running", 150], ["open", 300]]],
    ["closed before it ran", { status: "closed", outcome: null, started_at: null, finished_at: null }, [["queued", 100], ["ready", 110], ["closed", 1000]]],
  ])("that is %s", (_, fields, expected) => {
    expect(statesOf(fields)).toEqual(expected);
  });

  test.each([
    ["retried", "delayed"],
    ["worker_lost", "delayed"],
    ["waited_for_input", "needs_input"],
    ["unknown_outcome", "needs_input"],
    ["over_budget", "over_budget"],
  ])("after an attempt that ended by %s has the state %s until it is ready again", (endReason, state) => {
    expect(statesOf({ not_before: 140 }, [attempt(1, { endReason })])).toEqual([
      ["queued", 100], ["ready", 110], ["ready", 110], ["running", 120], [state, 130], ["ready", 140], ["running", 150], ["done", 300],
    ]);
  });
});

describe("the film of a run", () => {
  const steps = [
    step(1, "a", { created_at: 0, not_before: 0, started_at: 10, finished_at: 100 }),
    step(2, "b", { created_at: 100, not_before: 100, started_at: 500, finished_at: 600, outcome: "Failed", tokens_in: 3, tokens_out: 4 }),
    step(3, "b", { created_at: 100, not_before: 100, started_at: 550, finished_at: 700 }),
  ];
  const edge = { id: "e", from: "a", to: "b", branch: null, kind: "flow" };
  const graph: Frame = { type: "graph", graph: { drawn: true, nodes: [], edges: [edge] }, handlingNodes: new Set() };
  const run = runOf(steps, {}, [graph]);
  const film = new Film(run);

  test.each([
    [-1, {}],
    [0, { a: "ready" }],
    [50, { a: "running" }],
    [100, { a: "done", b: "ready" }],
    [520, { a: "done", b: "running" }],
    [650, { a: "done", b: "running" }],
    [700, { a: "done", b: "handled" }],
    [5000, { a: "done", b: "handled" }],
  ])("at %i has the nodes %o", (at, expected) => {
    expect(Object.fromEntries([...film.nodesAt(at)].map(([nodeId, node]) => [nodeId, node.state]))).toEqual(expected);
  });

  test("counts the steps of a node by their states, and tokens of those that have ended", () => {
    expect(film.nodesAt(560).get("b")).toMatchObject({ counts: { running: 2 }, steps: 2, tokens: 0 });
    expect(film.nodesAt(650).get("b")).toMatchObject({ counts: { handled: 1, running: 1 }, tokens: 7 });
  });

  test("ends with the picture of the run as it is", () => {
    const last = runAt(run, film, film.end);

    expect(Object.fromEntries(last.nodes)).toMatchObject(Object.fromEntries([...run.nodes].map(([nodeId, { state, counts }]) => [nodeId, { state, counts }])));
    expect(last.edges).toEqual(run.edges);
    expect(nodeState(last, "c")).toBe("skipped");
  });

  test("before its end has only the edges that were taken by then, and skips no node", () => {
    expect(runAt(run, film, 50).edges.get("e")).toBeUndefined();
    expect(runAt(run, film, 100).edges.get("e")).toBe(1);
    expect(nodeState(runAt(run, film, 50), "c")).toBe("pending");
  });

  test("marks failures, and knows when nothing ran", () => {
    expect(film.marks()).toEqual([{ at: 600, kind: "failure" }]);
    expect(film.idle()).toEqual([[0, 10], [100, 500], [700, 1000]]);
  });

  test("goes from change to change", () => {
    expect([film.neighbour(0, 1), film.neighbour(100, 1), film.neighbour(500, -1), film.neighbour(900, 1)]).toEqual([10, 500, 100, 1000]);
  });

  test("of 10,000 steps shows a time within 50 ms", () => {
    const many = Array.from({ length: 10_000 }, (_, at) => step(at, `LLM:${at % 3}`, { created_at: at, started_at: at + 1, finished_at: at + 2 }));
    const long = new Film(runOf(many));
    const began = processorTime();

    for (let at = 0; at < 10; at++) long.nodesAt(at * 1000);

    expect((processorTime() - began) / 10).toBeLessThan(50);
  });
});

test("a film store shows the run as it is until it has a time", () => {
  const source = new RunStore();
  source.apply([{ type: "header", header: HEADER, now: NOW }, { type: "steps", steps: [step(1, "a")] }]);
  const store = new FilmStore(source);
  let told = 0;
  store.subscribe(() => told++);

  expect(store.getState()).toBe(source.getState());
  store.setTime(160);

  expect(store.getState().nodes.get("a")?.state).toBe("running");
  expect(store.getState()).toBe(store.getState());
  expect(told).toBe(1);
});

describe("items", () => {
  const container = step(1, "Iteration:A", { outcome: "ContainerOpened", count: 3, ended_at: 900 });
  const inside = (number: number, item: number, fields: Record<string, unknown> = {}): Step => step(number, "LLM:0", { scope: `Iteration:A#0.${item}`, ...fields });
  const run = runOf([container, inside(2, 0), inside(3, 0, { outcome: "Failed", error: "broken" }), inside(4, 1, { status: "running", finished_at: null }), inside(5, 2), inside(6, 3)]);

  test("of an entry have the worst state of their steps; what collects them is none of them", () => {
    const items = itemsOf(run, "Iteration:A#0", 3);

    expect(items.map(({ item, state, steps, error, endedAt }) => [item, state, steps, error, endedAt])).toEqual([
      [0, "failed", 2, "broken", 300], [1, "active", 1, null, null], [2, "done", 1, null, 300],
    ]);
    expect(containerProgress(run).get("Iteration:A")).toEqual({ items: 3, done: 2 });
  });

  test("are found in scopes at any depth", () => {
    expect([itemIn("A#0", "A#0.12"), itemIn("A#0", "A#0.1/B#0.7"), itemIn("A#0/B#0", "A#0.1"), itemIn("A#0", "A#01.2")]).toEqual([12, 1, null, null]);
  });

  test("share cells where there are more items than places, each with the worst state", () => {
    const item = (number: number, state: Item["state"] = "done"): Item => ({ item: number, state, createdAt: 0, endedAt: 1, steps: 1, tokens: 0, error: null });
    const items = Array.from({ length: 10 }, (_, at) => item(at, at === 7 ? "failed" : at === 1 ? "active" : "done"));

    expect(cellsOf(items, 4).map((cell) => [cell.state, cell.items.length])).toEqual([["active", 3], ["done", 3], ["failed", 3], ["done", 1]]);
    expect(cellsOf(items, 100)).toHaveLength(10);
    expect(cellsOf([], 4)).toEqual([]);
  });

  test("are counted over time", () => {
    const item = (from: number, to: number | null): Item => ({ item: 0, state: "done", createdAt: from, endedAt: to, steps: 1, tokens: 0, error: null });

    expect(density([item(0, 15), item(10, 25), item(30, null)], 0, 40, 4, 40)).toEqual([1, 2, 1, 1]);
  });
});

describe("summaries of nodes", () => {
  test("that have not changed are the same objects", () => {
    const first = runOf([step(1, "a"), step(2, "b", { status: "running", finished_at: null })]);
    const next = applyFrames(first, [{ type: "steps", steps: [step(2, "b")] }]);

    expect(next.nodes.get("a")).toBe(first.nodes.get("a"));
    expect(next.nodes.get("b")).not.toBe(first.nodes.get("b"));
    expect(keepEqual(first.nodes, summarizeNodes(first)).get("a")).toBe(first.nodes.get("a"));
  });

  test("come from the counts of the server where rows are missing", () => {
    const places = [1, 0, 0, 2, 0, 1, 0, 0, 0, 0, 5, 1, 0, 0, 9, 10, 20, 300, 40, null].map((each) => each ?? 0);
    const run = runOf([], {}, [
      { type: "rows", rows: { isPartial: true, total: 50_000 } },
      { type: "graph", graph: { drawn: true, nodes: [], edges: [{ id: "e", from: "LLM:0", to: "b", branch: null, kind: "flow" }] }, handlingNodes: new Set() },
      { type: "server", facts: { nodes: { "LLM:0": places }, edges: { "LLM:0>b": 6 } } },
    ]);

    expect(run.nodes.get("LLM:0")).toMatchObject({ state: "failed", counts: { queued: 1, running: 3, done: 5, failed: 1 }, steps: 10, workMs: 300, tokens: 40 });
    expect(run.edges.get("e")).toBe(6);
  });
});

test("overlays sum up figures by node", () => {
  const run = runOf([
    step(1, "a", { tokens_in: 3, tokens_out: 4, cost: { USD: "0.5" } }),
    step(2, "a", { tokens_in: 1, tokens_out: 1, cost: { USD: "0.25" } }),
    step(3, "b"),
  ]);

  expect(Object.fromEntries(figuresOf(run, "tokens").of)).toEqual({ a: 9 });
  expect(figuresOf(run, "cost")).toMatchObject({ most: 0.75, currency: "USD" });
  expect(Object.fromEntries(figuresOf(run, "time").of)).toEqual({ a: 300, b: 150 });
  expect(Object.fromEntries(figuresOf(run, "wait").of)).toEqual({ a: 100, b: 50 });
  expect(Object.fromEntries(figuresOf(run, "count").of)).toEqual({ a: 2, b: 1 });
  expect([heatOf(0, 9), heatOf(9, 9), heatOf(0, 0)]).toEqual([0, 4, 0]);
});

describe("the address of a run's view", () => {
  test.each([
    [{ view: "time", t: "1234", z: "0.5,-10,20.5", w: "1,2", items: id(7), item: "12", which: "failed", overlay: "tokens", list: "1", order: "cost", only: "slow", find: "x" }, true],
    [{ view: "film", t: "soon", z: "1,2", w: "1", items: "7", item: "-1", which: "odd", overlay: "odd", list: "0", order: "odd", only: "odd" }, false],
    [{ only: "all", order: "canonical", overlay: "state", which: "all" }, false],
  ])("keeps what is valid of %o", (search, isKept) => {
    expect(runSearch(search)).toEqual(isKept ? search : {});
  });

  test("has the keys of what is open, whatever is in them", () => {
    const keys = ["sabc", "iLoop:a,b%2F#0.1/Odd&=?#1.2"];

    expect([...openKeys(openParameter(keys))]).toEqual(keys);
    expect(openParameter([])).toBeUndefined();
    expect(openKeys("%E0%A4%A").size).toBe(1);
  });

  test("has the part of the run that Time shows", () => {
    const whole = { from: 0, to: 100 };

    expect(domainOf(domainParameter({ from: 10, to: 20 }), whole)).toEqual({ from: 10, to: 20 });
    expect(domainOf("-50,50", whole)).toBeNull();
    expect(zoomedBy(whole, whole, 0.5, 0.5)).toEqual({ from: 25, to: 75 });
    expect(zoomedBy({ from: 25, to: 75 }, whole, 2, 0.5)).toBeNull();
    expect(within({ from: 95, to: 105 }, whole)).toEqual({ from: 90, to: 100 });
  });
});
