import { expect, test } from "vitest";

import { ApiError } from "../src/api/request";
import { isFinal, problemOf } from "../src/chat/conversation";
import { citedNumbers, filesOf, sourcesOf } from "../src/answer/message-end";
import { splitMarkers } from "../src/answer/markers";
import { ownFilePath, pictureType } from "../src/api/own-files";
import { newTurn, withEvent, type ChatTurn } from "../src/chat/turns";

const ID = "0123456789abcdef0123456789abcdef";

function after(...envelopes: Record<string, unknown>[]): ChatTurn {
  return envelopes.reduce(withEvent, newTurn("k", null));
}

function said(offset: number, content: string, turn = "s"): Record<string, unknown> {
  return { event: "message", turn, offset, data: { content } };
}

test("a text that is repeated after a lost connection continues at its code point", () => {
  const { answers, status } = after(said(0, "a🧡"), said(2, "bc"), said(2, "bcd"));
  expect([answers[0]?.text, status]).toEqual(["a🧡bcd", "running"]);
});

test("audio comes once after a lost connection, and goes with the text that a reset takes back", async () => {
  const audio = (offset: number, hex: string): Record<string, unknown> => ({ event: "message", turn: "s", offset, data: { content: "", audio_binary: hex } });
  const spoken = [said(0, "One. Two."), audio(9, "0102"), audio(43, "03"), audio(43, "04ff"), audio(77, "no hex")];
  const sources = after(...spoken).answers[0]?.speech.map((each) => each.source) ?? [];
  const bytes = await Promise.all(sources.map(async (each) => (each instanceof Blob ? [...new Uint8Array(await each.arrayBuffer())] : each)));
  expect(bytes).toEqual([[1, 2], [4, 255]]);
  const reset = after(...spoken, { event: "message_reset", data: { turn: "s", epoch: 1, keep: 4 } }).answers[0];
  expect([reset?.text, reset?.speech]).toEqual(["One.", []]);
});

test("a reset shortens a text, and reasoning is apart from the answer", () => {
  const turn = after(
    { event: "message", turn: "s", offset: 0, data: { content: "", start_to_think: true } },
    said(1, "hm"),
    { event: "message", turn: "s", offset: 3, data: { content: "", end_to_think: true } },
    said(4, "Hello world"),
    { event: "message_reset", data: { turn: "s", epoch: 1, keep: 9 } },
    said(9, "!"),
  );
  expect(splitMarkers(turn.answers[0]?.text ?? "")).toEqual({ answer: "Hello!", reasoning: "hm", audio: [] });
});

test.each([
  [{ event: "workflow_finished", data: { outputs: { content: "x" } } }, "done"],
  [{ event: "workflow_finished", data: { outputs: "Task has been canceled" } }, "stopped"],
  [{ event: "user_inputs", data: { forms: { "UserFillUp:0": { inputs: { name: { type: "line" } }, tips: "Who?" } } } }, "waiting"],
  [{ code: 500, message: "broken", data: false }, "failed"],
  [{ event: "an event of a newer release", data: {} }, "running"],
  [{ session_id: ID, data: {} }, "running"],
])("after %j the turn is %s", (envelope, status) => {
  const turn = after(said(0, "x"), envelope);
  expect(turn.status).toBe(status);
  expect(turn.answers[0]?.isOpen).toBe(status === "running");
});

test("the end of a message brings its files and sources", () => {
  const file = { doc_id: ID, filename: "a.pdf", mime_type: "application/pdf", size: 3 };
  const reference = { chunks: { 37: { document_name: "Doc", content: "text", url: "javascript:alert(1)" }, x: {} }, doc_aggs: {} };
  const turn = after(said(0, "See [ID:37] and [ID:5] and [ID:37]."), { event: "message_end", data: { downloads: [file, file], reference } });

  expect(turn.answers[0]?.files).toEqual([{ path: `/agents/attachments/${ID}/download`, name: "a.pdf", bytes: 3 }]);
  expect(turn.sources.get(37)).toEqual({ name: "Doc", content: "text", url: null });
  expect(citedNumbers(turn.answers.map((answer) => answer.text), turn.sources)).toEqual([37]);
});

test.each([null, "x", {}, { chunks: [] }, { chunks: { 1: null } }])("a reference like %j has no sources", (reference) => {
  expect([...sourcesOf(reference)]).toEqual([]);
});

test("a file whose id is no id is left out", () => {
  expect(filesOf({ downloads: [{ doc_id: "../../x", filename: "a" }, null, "x"], attachment: { doc_id: ID, file_name: "b" } })).toEqual([
    { path: `/agents/attachments/${ID}/download`, name: "b", bytes: null },
  ]);
});

test.each([
  [`/api/v1/documents/artifact/${ID}.png`, `/documents/artifact/${ID}.png`],
  [`/easel/api/v1/agents/attachments/${ID}/preview?ext=pdf`, `/agents/attachments/${ID}/download?ext=pdf`],
  [`/api/v1/agents/attachments/${ID}/download?mime_type=x&ext=pdf`, `/agents/attachments/${ID}/download?ext=pdf`],
  [`/api/v1/agents/attachments/${ID}/download?ext=../x`, `/agents/attachments/${ID}/download`],
  [`https://h/api/v1/documents/artifact/${ID}.csv`, `/documents/artifact/${ID}.csv`],
  [`https://other/api/v1/documents/artifact/${ID}.csv`, null],
  [`//other/api/v1/documents/artifact/${ID}.csv`, null],
  [`/api/v1/documents/artifact/${ID}.png/../../runs`, null],
  ["/api/v1/runs", null],
  ["javascript:alert(1)", null],
])("the address %s is the file %s", (url, path) => {
  expect(ownFilePath(url, "/easel", "https://h")).toBe(path);
});

test.each([["/a/x.PNG", "image/png"], ["/a/download?ext=png", "image/png"], ["/a/x.svg", null], ["/a/x", null], ["x.html", null]])("%s is a picture of type %s", (name, type) => {
  expect(pictureType(name)).toBe(type);
});

test.each([
  [new ApiError(401, "401", "Authorization is not valid!"), "revoked", true],
  [new ApiError(404, "102", "Can't find agent by ID: 0"), "deleted", true],
  [new ApiError(404, "102", "No available published version"), "unpublished", true],
  [new ApiError(409, "103", "running"), "busy", false],
  [new ApiError(429, "101", "slow"), "limited", false],
  [new ApiError(0, "unreachable", ""), "away", false],
  [new ApiError(503, "503", ""), "away", false],
  [new Error("x"), "other", false],
])("%s is the problem %s", (error, kind, final) => {
  expect([problemOf(error).kind, isFinal(problemOf(error))]).toEqual([kind, final]);
});
