import { describe, expect, test } from "vitest";

import type { Run, RunList, RunRow, RunStateRow } from "../src/api/replies";
import { Backoff } from "../src/live/backoff";
import { deltaOf, framesOfEvent, framesOfRun, framesOfState, stepsOf } from "../src/live/live-frames";
import { ServerClock } from "../src/api/server-clock";
import { answersOf, outcomeAnswers, questionOf } from "../src/run/form-values";
import { changingIds, mergeRuns } from "../src/runs/merge-runs";
import { apiFilters, runListSearch, toggledStatus } from "../src/runs/run-list-search";
import { withNewer } from "../src/runs/use-run-list";
import { differingNodes } from "../src/store/checksum";
import { explainRun } from "../src/store/explain";
import { applyFrames, continuesText, emptyRun, type Frame, type OpenForm, type RunState } from "../src/store/run";
import { activation, id } from "./run-files";

const COLUMNS = Object.keys(activation(1, "LLM:0"));
const INTERNED = ["node_id", "component", "scope", "status", "outcome", "worker", "code"];

/** Return rows as the API has them: in columns, with repeated texts as numbers. */
function compact(rows: readonly Record<string, unknown>[]): { columns: string[]; strings: string[]; rows: unknown[][] } {
  const strings: string[] = [];
  const number = (text: string): number => {
    if (!strings.includes(text)) strings.push(text);
    return strings.indexOf(text);
  };
  const values = rows.map((row) => COLUMNS.map((name) => (INTERNED.includes(name) && typeof row[name] === "string" ? number(row[name]) : row[name])));
  return { columns: COLUMNS, strings, rows: values };
}

function steps(...rows: Record<string, unknown>[]): Frame {
  return { type: "steps", steps: stepsOf(compact(rows)) };
}

const RUN = {
  id: id(1), status: "waiting", error: null, agent_id: null, agent_title: "A", version_id: null, version_title: null, session_id: null,
  request: { query: "hi" }, usage: {}, created_at: "2026-01-01T00:00:00Z", started_at: null, finished_at: null, origin: null, now: 5,
  may: { cancel: true, answer: true, raise_budget: false, rerun: true, fork: true, share: true, edit: true },
  waits: { sentence: "A person must answer.", waits_for: "person", owner: "a person", until: null, activation_id: id(9), also: [{ sentence: "More." }] },
  waiting: {
    "Form:0": { inputs: { name: { type: "line", name: "Name", optional: false } }, tips: "Who?" },
    "LLM:0": { inputs: { budget: { budget: { limit: 1 } } }, tips: "" },
  },
  budget_exceeded: { scope: "run", measure: "tokens", limit: 1, spent: 0, asked: 20, currency: null, model: "m" },
  nodes: { "LLM:0": [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, null, null, 0, 0, null] },
} as unknown as Run;

describe("a run of the API", () => {
  const state = applyFrames(emptyRun(), framesOfRun(RUN));

  test("has its header, what the reader may do, and the server's sentence", () => {
    expect(state.header).toMatchObject({ id: id(1), agentId: "", query: "hi" });
    expect(state.server?.may).toEqual({ cancel: true, answer: true, raise_budget: false, rerun: true, fork: true });
    expect(explainRun(state)).toMatchObject({ sentence: "A person must answer.", waitsFor: "person", stepId: id(9) });
    expect(state.server?.waits?.also).toEqual(["More."]);
  });

  test("has the forms of people, and a budget apart from them", () => {
    expect(state.forms.map((form) => form.nodeId)).toEqual(["Form:0"]);
    expect(state.server?.budgetExceeded).toMatchObject({ measure: "tokens", limit: "1", asked: "20" });
  });

  // T044
  test("shows steps as unresponsive whose lease has expired", () => {
    const running = { status: "running", outcome: null, finished_at: null };
    const next = applyFrames(state, [steps(activation(1, "LLM:0", running), activation(2, "LLM:0", running))]);

    expect(next.nodes.get("LLM:0")).toMatchObject({ state: "unresponsive", counts: { running: 1, unresponsive: 1 } });
  });
});

describe("frames of a state", () => {
  test("change only what they have", () => {
    const state = applyFrames(emptyRun(), framesOfRun(RUN));
    const next = applyFrames(state, framesOfState({ now: 6, revision: 3, status: "running", waits: null }));

    expect(next.header).toMatchObject({ status: "running", query: "hi" });
    expect(next.server?.waits).toBeNull();
    expect(next.server?.nodes).toEqual(state.server?.nodes);
  });

  test("name the nodes whose policy handled a failure", () => {
    const handled = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    const failed = activation(1, "LLM:0", { outcome: "Failed" });
    const next = applyFrames(emptyRun(), [...framesOfRun(RUN), steps(failed), ...framesOfState({ nodes: { "LLM:0": handled } })]);

    expect(next.nodes.get("LLM:0")?.state).toBe("handled");
  });
});

// T059
describe("the checksum", () => {
  const counts = (place: number): number[] => Array.from({ length: 20 }, (_, each) => (each === place ? 1 : 0));
  const withCounts = (place: number, fields: Record<string, unknown>): RunState =>
    applyFrames(emptyRun(), [...framesOfRun({ ...RUN, nodes: { "LLM:0": counts(place) } }), steps(activation(1, "LLM:0", fields))]);

  test("finds a node with other rows than the server counts", () => {
    expect(differingNodes(withCounts(10, { status: "running", outcome: null }))).toEqual(["LLM:0"]);
    expect(differingNodes(applyFrames(emptyRun(), framesOfRun({ ...RUN, nodes: { "LLM:0": counts(10) } })))).toEqual(["LLM:0"]);
  });

  test.each([[1, "ready"], [2, "ready"], [4, "running"], [7, "waiting"], [12, "done"], [13, "closed"]] as const)(
    "accepts place %i as status %s",
    (place, status) => {
      expect(differingNodes(withCounts(place, { status }))).toEqual([]);
    },
  );
});

describe("text of a message stream", () => {
  const stream = id(7);
  const delta = (offset: number, text: string): Frame => ({ type: "delta", delta: { stepId: stream, nodeId: "Message:0", offset, text } });
  const textOf = (frames: readonly Frame[]): string | undefined => applyFrames(emptyRun(), frames).streams[0]?.text;

  test("is put together by code points", () => {
    expect(textOf([delta(0, "a🧡"), delta(2, "b"), delta(3, "c")])).toBe("a🧡bc");
  });

  test("that is repeated is not doubled", () => {
    expect(textOf([delta(0, "one two"), delta(4, "two three")])).toBe("one two three");
    expect(textOf([delta(0, "one"), delta(0, "one two")])).toBe("one two");
  });

  test("with a gap does not continue", () => {
    const state = applyFrames(emptyRun(), [delta(0, "🧡🧡")]);

    expect(continuesText(state, { stepId: stream, nodeId: "", offset: 2, text: "" })).toBe(true);
    expect(continuesText(state, { stepId: stream, nodeId: "", offset: 3, text: "" })).toBe(false);
    expect(continuesText(state, { stepId: id(8), nodeId: "", offset: 1, text: "" })).toBe(false);
  });

  // T044
  test("that is reset keeps only its beginning", () => {
    expect(textOf([delta(0, "🧡bc"), { type: "reset", stepId: stream, retainedLength: 1 }, delta(1, "d")])).toBe("🧡d");
  });

  test("that is not a delta is left out", () => {
    expect(deltaOf({ stream, offset: "0", text: "a" })).toBeNull();
  });
});

describe("an event", () => {
  test("has its step, its time and what is particular to it", () => {
    const envelope = { event: "node_started", seq: 4, activation: id(2), item: 1, at: 50, data: { component_id: "LLM:0", component_name: "x", thoughts: "t" } };

    expect(framesOfEvent(envelope)).toEqual([
      { type: "events", events: [{ number: 4, name: "node_started", stepId: id(2), nodeId: "LLM:0", item: 1, at: 50, summary: '{"thoughts":"t"}' }] },
    ]);
  });

  test("without a name is the failure of the run", () => {
    expect(framesOfEvent({ code: 500, message: "broken", data: false, seq: 9 })[0]).toMatchObject({ events: [{ name: "run_failed", summary: '{"message":"broken"}' }] });
  });

  test("that ends a message closes its stream", () => {
    expect(framesOfEvent({ event: "message_end", seq: 5, activation: id(7), data: {} })[1]).toEqual({ type: "stream_end", stepId: id(7), number: 5 });
  });
});

describe("tries", () => {
  test("wait longer each time, up to 15 s, and as long as the server says", () => {
    const backoff = new Backoff(() => 0, () => 0.5);

    expect([backoff.fail(), backoff.fail(), backoff.fail()]).toEqual([500, 1000, 2000]);
    expect(Array.from({ length: 9 }, () => backoff.fail()).at(-1)).toBe(15_000);
    expect(backoff.fail(60)).toBe(60_000);
  });

  test("are hopeless after three failures within a minute", () => {
    let now = 0;
    const backoff = new Backoff(() => now, () => 0.5);
    backoff.fail();
    now = 61_000;
    backoff.fail();
    backoff.fail();
    expect(backoff.isHopeless).toBe(false);
    backoff.fail();
    expect(backoff.isHopeless).toBe(true);
  });
});

test("the clock of the server is that of the fastest reply", () => {
  let local = 100;
  const clock = new ServerClock(() => local);
  expect(clock.now()).toBe(0);
  clock.note(1000);
  local = 200;
  clock.note(1050); // 50 ms late
  local = 300;

  expect(clock.now()).toBe(1200);
});

describe("answers to a form", () => {
  const field = (key: string, type: string, isOptional = false): OpenForm["fields"][number] => ({ key, name: key, type, isOptional, options: [], value: null });
  const form: OpenForm = { nodeId: "Form:0", tips: null, fields: [field("name", "line"), field("age", "integer", true), field("ok", "boolean")] };

  // T070
  test("need every field that is not optional", () => {
    expect(answersOf(form, { name: " " })).toEqual({ errors: { name: "Fill in this field." } });
    expect(answersOf(form, { name: "Ada", age: "x" })).toEqual({ errors: { age: "Enter a number." } });
  });

  // T070
  test("have the types of their fields", () => {
    expect(answersOf(form, { name: "Ada", age: "36" })).toEqual({ answers: { inputs: { name: "Ada", age: 36, ok: false } } });
  });

  // T073
  test("say whether a node has acted, with its outputs", () => {
    expect(questionOf({ ...form, fields: [field("Browser:0.outcome", "options")] })).toBe("Browser:0");
    expect(questionOf(form)).toBeNull();
    expect(outcomeAnswers("B:0", "again", "{")).toEqual({ answers: { outcomes: { "B:0": "again" } } });
    expect(outcomeAnswers("B:0", "happened", '{"a": 1}')).toEqual({ answers: { inputs: { "B:0.outcome": "happened", "B:0.outputs": { a: 1 } } } });
    expect(outcomeAnswers("B:0", "happened", "[1]")).toEqual({ error: "Enter a JSON object." });
  });
});

describe("the list of runs", () => {
  const row = (number: number, status: string): RunRow => ({ id: id(number), status, elapsed_ms: null }) as unknown as RunRow;

  test("shows each run once, with its newest state unless it is over", () => {
    const states = new Map([1, 2].map((number) => [id(number), { id: id(number), status: "failed" } as unknown as RunStateRow]));
    const rows = mergeRuns([[row(3, "running"), row(2, "running")], [row(2, "running"), row(1, "succeeded")]], states);

    expect(rows.map((each) => [each.id, each.status])).toEqual([[id(3), "running"], [id(2), "failed"], [id(1), "succeeded"]]);
    expect(changingIds(rows)).toEqual([id(3)]);
  });

  test("puts newer runs before those it has, or begins again without an overlap", () => {
    const page = (...numbers: number[]): RunList => ({ runs: numbers.map((number) => row(number, "queued")) });
    const known = { pages: [page(2, 1), page(0)], pageParams: [undefined, "x"] };
    const ids = (pages: ReturnType<typeof withNewer>): string[] => pages.pages.flatMap((each) => each.runs.map((run) => run.id));

    expect(ids(withNewer(known, page(4, 3, 2)))).toEqual([4, 3, 2, 1, 0].map(id));
    expect(ids(withNewer(known, page(9, 8)))).toEqual([9, 8].map(id));
  });

  test("has valid filters only", () => {
    expect(runListSearch({ status: "failed,nonsense", agent: "x", time: "year", trouble: "2", q: "  a " })).toEqual({ status: "failed", q: "a" });
    expect(apiFilters({ time: "hour", status: "failed" }, 7_200_000)).toMatchObject({ from: "1970-01-01T01:00:00.000Z", status: "failed" });
    expect(toggledStatus({ status: "failed,waiting" }, "failed")).toBe("waiting");
  });
});
