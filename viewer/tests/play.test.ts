/** The turns of a conversation, and what an agent begins with. */
import { describe, expect, it } from "vitest";

import type { ConversationMessage } from "../src/api/play";
import type { RunRow } from "../src/api/replies";
import { beginOf, beginOfDocument, inputsOf, mayBeWordless } from "../src/play/begin";
import { errorsOf } from "../src/play/findings";
import { playSearch } from "../src/play/play-search";
import { activeTurn, latestRun, turnsOf } from "../src/play/turns";

function said(number: number, role: "user" | "assistant", runId: string | null, content: unknown = `${role} ${number}`): ConversationMessage {
  return { number, role, content, run_id: runId, activation_id: null, node_id: null, created_at: number };
}

function run(id: string, status: string, second: number): RunRow {
  const rest = { external_id: null, agent_id: "a", error: null, has_model_error: false, last_event: 0, message_id: null, elapsed_ms: null, finished_at: null };
  const at = `2026-01-01T00:00:${String(second).padStart(2, "0")}+00:00`;
  return { ...rest, id, status, created_at: at, started_at: null, origin: null, session_id: "s", usage: {}, version_id: "v", query: `query of ${id}` };
}

const shape = (turns: ReturnType<typeof turnsOf>): unknown[] => turns.map((turn) => [turn.runId, turn.asked.length, turn.answer?.number ?? null]);

describe("turnsOf", () => {
  it("joins question and answer of a run, also where a form was answered by a message", () => {
    const messages = [said(1, "user", "r1"), said(2, "assistant", "r1"), said(3, "user", "r2"), said(4, "user", "r2"), said(5, "assistant", "r2")];
    expect(shape(turnsOf(messages, [run("r2", "succeeded", 2), run("r1", "succeeded", 1)]))).toEqual([["r1", 1, 2], ["r2", 2, 5]]);
  });

  it("keeps turns that another conversation has handed on apart", () => {
    const messages = [said(1, "user", null), said(2, "assistant", null), said(3, "user", null), said(4, "assistant", null), said(5, "user", "r1")];
    expect(shape(turnsOf(messages, [run("r1", "running", 1)]))).toEqual([[null, 1, 2], [null, 1, 4], ["r1", 1, null]]);
  });

  it("shows queued runs last and those that were cancelled before they ran in their place", () => {
    const messages = [said(1, "user", "r1"), said(2, "user", "r4")];
    const runs = [run("r5", "queued", 5), run("r3", "queued", 3), run("r2", "cancelled", 2), run("r4", "running", 4), run("r1", "succeeded", 1)];
    const turns = turnsOf(messages, runs);
    expect(turns.map((turn) => turn.runId)).toEqual(["r1", "r2", "r4", "r3", "r5"]);
    expect(turns[1]?.asked).toEqual(["query of r2"]);
    expect(activeTurn(turns)?.runId).toBe("r4");
    expect(latestRun(turns)).toBe("r4");
  });

  it("leaves out runs from before the messages that are loaded", () => {
    const turns = turnsOf([said(7, "user", "r4")], [run("r4", "succeeded", 4), run("r1", "cancelled", 1)], true);
    expect(turns.map((turn) => turn.runId)).toEqual(["r4"]);
  });

  it("follows the last run when none is active", () => {
    const turns = turnsOf([said(1, "user", "r1"), said(2, "user", "r2")], [run("r1", "succeeded", 1), run("r2", "failed", 2)]);
    expect(activeTurn(turns)).toBeNull();
    expect(latestRun(turns)).toBe("r2");
    expect(latestRun([])).toBeNull();
  });
});

describe("what an agent begins with", () => {
  const params = { prologue: "Hi", inputs: { n: { type: "integer", name: "Number" }, f: { type: "file", optional: true } } };

  it("comes from Begin's parameters, wherever they are", () => {
    const document = { components: { x: { obj: { component_name: "Message", params: {} } }, begin: { obj: { component_name: "Begin", params } } } };
    expect(beginOfDocument(document)).toEqual(beginOf(params));
    expect(beginOf(params)).toMatchObject({ prologue: "Hi", mode: "conversational" });
    expect(beginOf({ ...params, enablePrologue: false }).prologue).toBe("");
    expect(beginOfDocument({})).toEqual(beginOf({}));
    expect([mayBeWordless(beginOf({})), mayBeWordless(beginOf(params)), mayBeWordless(beginOf({ mode: "task" }))]).toEqual([false, true, true]);
  });

  it("is sent with the types of its fields, without those that are empty", () => {
    const { form } = beginOf(params);
    expect(inputsOf(form, { n: "3" })).toEqual({ inputs: { n: { type: "integer", value: 3 } } });
    expect(inputsOf(form, {})).toHaveProperty("errors.n");
  });
});

describe("errorsOf", () => {
  it("takes errors alone, and nothing from what is no finding", () => {
    const found = errorsOf([{ severity: "error", node: "a", field: null, message: "m", code: "c" }, { severity: "warning", message: "w" }, 3, null]);
    expect(found).toEqual([{ node: "a", field: "", message: "m", code: "c" }]);
    expect(errorsOf({})).toEqual([]);
  });
});

describe("playSearch", () => {
  it("keeps ids and the view of the run, and leaves out what is not valid", () => {
    const id = "0123456789abcdef".repeat(2);
    expect(playSearch({ conversation: id, version: id, run: "../x", view: "time", step: id, other: "1" })).toEqual({ conversation: id, version: id, view: "time", step: id });
    expect(playSearch({ conversation: "<script>", run: 5 })).toEqual({});
  });
});
