import { describe, expect, test } from "vitest";

import { Row, stepOf } from "../src/run-file/rows";
import { takenEdges } from "../src/store/edges";
import { explainRun } from "../src/store/explain";
import { NODE_LOOKS, nodeState, stepState } from "../src/store/node-states";
import { applyFrames, emptyRun, type Attempt, type Frame, type RunHeader, type RunState } from "../src/store/run";
import { RUN_LOOKS, runLook } from "../src/store/run-status";
import { RunStore } from "../src/store/run-store";
import { entryOf, scopeParts, splitScope } from "../src/store/scopes";
import { segmentsOf } from "../src/store/segments";
import { buildTree, keysAbove, selectSteps, summarizeItem, visibleRows } from "../src/store/step-tree";
import type { Step } from "../src/store/steps";
import { processorTime } from "./processor-time";
import { activation, id } from "./run-files";

const NOW = 1_700_000_100_000;

const HEADER: RunHeader = {
  id: id(1), status: "running", error: null, agentId: id(2), agentTitle: null, versionId: id(3), versionTitle: null,
  sessionId: id(4), query: null, files: [], createdAt: 0, startedAt: 0, finishedAt: null, origin: null, versionNumber: null, versionDigest: null, draftDigest: null,
  usage: { promptTokens: 0, completionTokens: 0, cachedTokens: 0, calls: 0, unpricedCalls: 0, cost: {} },
};

function step(number: number, nodeId: string, fields: Record<string, unknown> = {}): Step {
  return stepOf(new Row(activation(number, nodeId, fields), "activations", number));
}

function runOf(steps: readonly Step[], header: Partial<RunHeader> = {}, more: readonly Frame[] = []): RunState {
  return applyFrames(emptyRun(), [{ type: "header", header: { ...HEADER, ...header }, now: NOW }, { type: "steps", steps }, ...more]);
}

// T059
describe("frames", () => {
  test("that bring a step again replace it", () => {
    const first = runOf([step(1, "LLM:0", { status: "running", outcome: null, finished_at: null })]);
    const second = applyFrames(first, [{ type: "steps", steps: [step(1, "LLM:0")] }]);

    expect(second.steps.count).toBe(1);
    expect(second.steps.find(id(1))).toEqual(step(1, "LLM:0"));
    expect(second.version).toBe(first.version + 1);
  });

  test("keep every field of a step", () => {
    const whole = step(7, "Switch:0", { routed_to: ["a", "b"], error: "e", cost: { USD: "1" }, stream: id(9), count: 3, scope: "Iteration:0#0.1" });

    expect(runOf([whole]).steps.find(id(7))).toEqual(whole);
  });

  test("that repeat events add them once and in order", () => {
    const event = (number: number) => ({ number, name: "e", stepId: null, nodeId: null, item: null, at: null, summary: "" });
    const state = runOf([], {}, [{ type: "events", events: [event(2), event(1)] }, { type: "events", events: [event(2), event(3)] }]);

    expect(state.events.map((each) => each.number)).toEqual([1, 2, 3]);
  });

  test.each([
    ["succeeded", 0],
    ["waiting", 1],
  ])("that say that the run is %s leave %i open forms", (status, count) => {
    const form = { nodeId: "UserFillUp:0", tips: "", fields: [] };
    const state = runOf([], { status: "waiting" }, [{ type: "forms", forms: [form] }, { type: "status", status }]);

    expect(state.forms).toHaveLength(count);
  });

  test("that come together notify readers once", () => {
    const store = new RunStore();
    let times = 0;
    store.subscribe(() => times++);

    store.apply([{ type: "steps", steps: [step(1, "a")] }, { type: "steps", steps: [step(2, "b")] }]);

    expect(times).toBe(1);
  });
});

// T059
describe("the state of a step", () => {
  test.each([
    [{ status: "queued" }, "queued"],
    [{ status: "ready" }, "ready"],
    [{ status: "ready", not_before: NOW + 1 }, "delayed"],
    [{ status: "ready", not_before: NOW - 1 }, "ready"],
    [{ status: "running" }, "running"],
    [{ status: "reported" }, "running"],
    [{ status: "waiting" }, "needs_input"],
    [{ status: "waiting", code: "over_budget" }, "over_budget"],
    [{ status: "awaiting_stream" }, "streaming"],
    [{ status: "open", outcome: "ContainerOpened" }, "open"],
    [{ status: "closed" }, "closed"],
    [{ status: "done", outcome: "Finished" }, "done"],
    [{ status: "done", outcome: "Routed" }, "done"],
    [{ status: "done", outcome: "Failed" }, "failed"],
  ])("of %o is %s", (fields, expected) => {
    expect(stepState(runOf([step(1, "LLM:0", fields)]), 0)).toBe(expected);
  });

  test("that failed is handled if its node's policy continues, or the run succeeded", () => {
    const failed = step(1, "LLM:0", { outcome: "Failed" });
    const policy: Frame = { type: "graph", graph: null, handlingNodes: new Set(["LLM:0"]) };

    expect(stepState(runOf([failed], {}, [policy]), 0)).toBe("handled");
    expect(stepState(runOf([failed], { status: "succeeded" }), 0)).toBe("handled");
  });
});

// T059
describe("the state of a node", () => {
  test("with several steps is the one that matters most, with counts", () => {
    const run = runOf([step(1, "LLM:0"), step(2, "LLM:0", { status: "running" }), step(3, "LLM:0", { outcome: "Failed" })]);

    expect(run.nodes.get("LLM:0")).toMatchObject({ state: "failed", counts: { done: 1, running: 1, failed: 1 }, steps: 3 });
  });

  test("without steps is pending while the run goes on, then skipped", () => {
    expect(nodeState(runOf([]), "LLM:0")).toBe("pending");
    expect(nodeState(runOf([], { status: "failed" }), "LLM:0")).toBe("skipped");
  });

  test("of a container counts items and the time until its last item", () => {
    const container = step(1, "Iteration:0", { outcome: "ContainerOpened", count: 4, started_at: 100, finished_at: 110, ended_at: 900 });

    expect(runOf([container]).nodes.get("Iteration:0")).toMatchObject({ items: 4, workMs: 800 });
  });
});

// T039, T124
test("states differ from each other by word and icon", () => {
  const looks = [...Object.values(NODE_LOOKS)];

  expect(looks).toHaveLength(15);
  expect(new Set(looks.map((look) => look.word)).size).toBe(looks.length);
  expect(new Set(looks.map((look) => look.icon)).size).toBe(looks.length);
  expect(new Set(looks.map((look) => `${look.icon} ${look.border}`)).size).toBe(looks.length);
  expect(new Set(Object.values(RUN_LOOKS).map((look) => `${look.icon} ${look.border}`)).size).toBe(Object.keys(RUN_LOOKS).length);
  expect(runLook("paused").word).toBe("paused");
});

// T038, T059
test("edges are followed by outcome: all, those routed to, or that of the exception", () => {
  const edge = (from: string, to: string, kind = "flow", branch: string | null = null) => ({ id: `${from}>${to}`, from, to, branch, kind });
  const edges = [edge("a", "b"), edge("s", "x"), edge("s", "y"), edge("f", "ok"), edge("f", "rescue", "exception"), edge("a", "tool", "tool")];
  const graph: Frame = { type: "graph", graph: { drawn: true, nodes: [], edges }, handlingNodes: new Set() };
  const steps = [step(1, "a"), step(2, "s", { outcome: "Routed", routed_to: ["y"] }), step(3, "f", { outcome: "Failed" }), step(4, "a", { status: "closed", outcome: null })];

  expect(Object.fromEntries(takenEdges(runOf(steps, {}, [graph])))).toEqual({ "a>b": 1, "s>y": 1, "f>rescue": 1 });
});

describe("a run is explained", () => {
  test("by its error and the first step that failed", () => {
    const steps = [step(1, "a", { outcome: "Failed", finished_at: 900 }), step(2, "b", { outcome: "Failed", finished_at: 500 })];

    expect(explainRun(runOf(steps, { status: "failed", error: "Node b: broken\nmore" }))).toMatchObject({ sentence: "Node b: broken", stepId: id(2), tone: "red" });
  });

  test("by handled failures if it succeeded", () => {
    expect(explainRun(runOf([step(1, "a", { outcome: "Failed" })], { status: "succeeded" }))).toMatchObject({ handled: 1, stepId: null });
  });

  test("by the person it waits for", () => {
    const forms: Frame = { type: "forms", forms: [{ nodeId: "f", tips: "Who are you?", fields: [] }] };
    const run = runOf([step(1, "f", { status: "waiting", outcome: null })], { status: "waiting" }, [forms]);

    expect(explainRun(run)).toMatchObject({ waitsFor: "person", stepId: id(1), sentence: "The run waited for a person to fill in a form: Who are you?" });
  });

  test("by what was running", () => {
    expect(explainRun(runOf([step(1, "a", { status: "running" })]))?.sentence).toBe("1 step was running.");
  });
});

// T059
describe("segments", () => {
  const kinds = (fields: Record<string, unknown>, attempts: Attempt[] = []) =>
    segmentsOf(step(0, "LLM:0", fields), attempts, [], [], 0, 1000).map((each) => [each.kind, each.from, each.to]);
  const times = { created_at: 100, started_at: 150, finished_at: 300 };

  test("of a step that is done are its wait and its work", () => {
    expect(kinds(times)).toEqual([["queue", 100, 150], ["work", 150, 300]]);
  });

  test.each([
    [{ ...times, status: "running", finished_at: null }, [["queue", 100, 150], ["work", 150, 1000]]],
    [{ ...times, status: "ready", started_at: null, finished_at: null }, [["queue", 100, 1000]]], // T049
    [{ ...times, status: "ready", started_at: null, finished_at: null, not_before: 2000 }, [["delayed", 1000, 2000]]],
    [{ ...times, status: "queued", started_at: null, finished_at: null }, [["run_slot", 100, 1000]]],
    [{ ...times, status: "waiting" }, [["queue", 100, 150], ["work", 150, 300], ["person", 300, 1000]]],
    [{ ...times, outcome: "ContainerOpened", ended_at: 800 }, [["queue", 100, 150], ["work", 150, 300], ["open", 300, 800]]],
  ])("of %o go to now", (fields, expected) => {
    expect(kinds(fields)).toEqual(expected);
  });

  test.each([
    ["waited_for_input", [["queue", 100, 110], ["work", 110, 120], ["person", 120, 140], ["queue", 140, 150], ["work", 150, 300]]],
    ["worker_lost", [["queue", 100, 110], ["lost", 110, 120], ["queue", 140, 150], ["work", 150, 300]]],
    ["postponed", [["queue", 100, 110], ["work", 110, 120], ["rate_limit", 120, 140], ["queue", 140, 150], ["work", 150, 300]]],
  ])("after an attempt that %s", (endReason, expected) => {
    const attempt: Attempt = { stepId: id(0), attempt: 1, readyAt: 100, startedAt: 110, endedAt: 120, worker: null, endReason, code: null, error: null, nextAttemptAt: 140, tokens: null };

    expect(kinds({ ...times, attempt: 2 }, [attempt])).toEqual(expected);
  });
});

test("scopes are read like the engine writes them", () => {
  expect(scopeParts("A%2FB%25#1.2/Loop:C#0.17")).toEqual([{ container: "A/B%", ordinal: 1, item: 2 }, { container: "Loop:C", ordinal: 0, item: 17 }]);
  expect(entryOf("X#0.1", "A/B%", 1)).toBe("X#0.1/A%2FB%25#1");
  expect(splitScope("X#0.1/Y#2.30")).toEqual({ entry: "X#0.1/Y#2", item: 30 });
  expect(splitScope("")).toBeNull();
});

describe("the tree of steps", () => {
  const steps = [
    step(1, "begin"),
    step(2, "Iteration:A", { outcome: "ContainerOpened", count: 2 }),
    step(3, "IterationItem:A", { scope: "Iteration:A#0.0" }),
    step(4, "Iteration:B", { scope: "Iteration:A#0.0", outcome: "ContainerOpened" }),
    step(5, "LLM:B", { scope: "Iteration:A#0.0/Iteration:B#0.0", outcome: "Failed" }),
    step(6, "IterationItem:A", { scope: "Iteration:A#0.1" }),
    step(7, "end"),
  ];

  test("lists only what is open", () => {
    const run = runOf(steps);
    const tree = buildTree(run);

    const shown = (open: string[]) => visibleRows(run, tree, new Set(open)).map((row) => `${row.level} ${row.key.slice(0, 1)}${row.kind === "item" ? row.item : run.steps.text(row.row, "nodeId")}`);

    expect(shown([])).toEqual(["1 sbegin", "1 sIteration:A", "1 send"]);
    expect(shown([`s${id(2)}`])).toEqual(["1 sbegin", "1 sIteration:A", "2 i0", "2 i1", "1 send"]);
    expect(shown([`s${id(2)}`, "iIteration:A#0.0"])).toEqual(["1 sbegin", "1 sIteration:A", "2 i0", "3 sIterationItem:A", "3 sIteration:B", "2 i1", "1 send"]);
  });

  test("names what must be open for a step to be seen", () => {
    const run = runOf(steps);
    const tree = buildTree(run);
    const row = run.steps.rowOf(id(5)) ?? -1;

    const keys = keysAbove(run, tree, row);

    expect(keys).toHaveLength(4);
    expect(visibleRows(run, tree, new Set(keys)).map((each) => each.row)).toContain(row);
  });

  test("sums up an item and selects by filter", () => {
    const run = runOf(steps);

    expect(summarizeItem(run, buildTree(run), "Iteration:A#0.0/Iteration:B#0.0").state).toBe("failed");
  });

  test.each([
    ["failed", "", 1, ["1 Iteration:A", "2 item 0", "3 Iteration:B", "4 item 0", "5 LLM:B"]],
    ["active", "", 0, []],
    ["all", "llm:b", 1, ["1 Iteration:A", "2 item 0", "3 Iteration:B", "4 item 0", "5 LLM:B"]],
    ["all", "The Begin", 1, ["1 begin"]],
    ["failed", "begin", 0, []],
  ] as const)("filtered by %s and the text %j lists these and what they lie in", (filter, text, count, expected) => {
    const run = runOf(steps);
    const tree = buildTree(run);

    const selection = selectSteps(run, tree, filter, text, new Map([["begin", "The beginning"]]));
    const rows = visibleRows(run, tree, new Set(), { selection });

    expect(selection?.count).toBe(count);
    expect(rows.map((row) => `${row.level} ${row.kind === "item" ? `item ${row.item}` : run.steps.text(row.row, "nodeId")}`)).toEqual(expected);
  });

  test("by duration has the longest step and item first, at every level", () => {
    const run = runOf([
      step(1, "a", { started_at: 0, finished_at: 10 }),
      step(2, "Iteration:A", { outcome: "ContainerOpened", count: 2, started_at: 0, ended_at: 500 }),
      step(3, "b", { scope: "Iteration:A#0.0", created_at: 0, started_at: 0, finished_at: 5 }),
      step(4, "b", { scope: "Iteration:A#0.1", created_at: 0, started_at: 0, finished_at: 400 }),
      step(5, "c", { started_at: 0, finished_at: 100 }),
    ]);

    const rows = visibleRows(run, buildTree(run), new Set([`s${id(2)}`]), { order: "duration" });

    expect(rows.map((row) => row.item ?? run.steps.text(row.row, "nodeId"))).toEqual(["Iteration:A", 1, 0, "c", "a"]);
  });

  test("lists attempts and calls below a step that is open", () => {
    const attempt = { stepId: id(1), attempt: 1, readyAt: 0, startedAt: 1, endedAt: 2, worker: null, endReason: "retried", code: null, error: null, nextAttemptAt: 3, tokens: null };
    const run = runOf([step(1, "LLM:0", { attempt: 2 })], {}, [{ type: "attempts", attempts: [attempt] }]);

    const rows = visibleRows(run, buildTree(run), new Set([`s${id(1)}`]));

    expect(rows.map((row) => `${row.level} ${row.kind} ${row.detail}`)).toEqual(["1 step 0", "2 attempt 0", "2 attempt 1"]);
  });

  test("of 100,000 steps is built and listed within two seconds", () => {
    const many = Array.from({ length: 100_000 }, (_, at) => step(at, "LLM:0", { scope: `Iteration:A#0.${at}` }));
    const run = runOf([step(200_000, "Iteration:A", { outcome: "ContainerOpened" }), ...many]);
    const began = processorTime();

    const rows = visibleRows(run, buildTree(run), new Set([`s${id(200_000)}`]));

    expect(rows).toHaveLength(100_001);
    expect(processorTime() - began).toBeLessThan(2000);
  });
});
