import { describe, expect, test } from "vitest";

import { MAX_FILE_BYTES, RunFileError } from "../src/run-file/file-errors";
import { readRunFile } from "../src/run-file/read-run-file";
import { RunStore } from "../src/store/run-store";
import { activation, fileOf, id, runDocument } from "./run-files";

async function read(document: unknown, space?: number) {
  const store = new RunStore();
  const contents = await readRunFile(fileOf(document, space), store, { signal: new AbortController().signal, onProgress: () => undefined });
  return { state: store.getState(), contents };
}

async function errorOf(file: Blob): Promise<RunFileError> {
  const store = new RunStore();
  const options = { signal: new AbortController().signal, onProgress: () => undefined };
  const error = await readRunFile(file, store, options).then(() => null, (each: unknown) => each);
  expect(error).toBeInstanceOf(RunFileError);
  expect(store.getState().header).toBeNull();
  return error as RunFileError;
}

describe("an exported run", () => {
  test.each([undefined, 2])("is read into the store, indented by %s", async (space) => {
    const { state } = await read(runDocument(), space);

    expect(state.header).toMatchObject({ agentTitle: "Support", status: "succeeded", query: "Hello" });
    expect(state.header?.usage).toMatchObject({ promptTokens: 3, cost: { USD: "0.01" } });
    expect(state.steps.count).toBe(2);
    expect(state.nodes.get("Message:0")?.state).toBe("done");
    expect(state.graph?.edges).toHaveLength(1);
    expect(state.streams[0]?.text).toBe("Hi");
    expect(state.events[0]).toMatchObject({ number: 1, name: "workflow_started", summary: "" });
  });

  test.each([undefined, 2])("gives values and bodies from the file, indented by %s", async (space) => {
    const { contents } = await read(runDocument(), space);

    const values = await contents.stepValues(id(2));
    expect(values.inputs).toEqual({ query: "Hello" });
    expect(values.outputs).toEqual({ content: "Hi 👋 \"x\" \\ \u202e" });
    expect(values.variables).toEqual({ "env.count": 3 });
    expect(await contents.callBodies(id(50))).toEqual({
      messages: [{ role: "system", content: "Be short." }, { role: "user", content: "Hello" }],
      tools: null,
      params: { temperature: 0 },
      response: { role: "assistant", content: "Hi" },
    });
    expect(await contents.toolBodies(id(60))).toEqual({ arguments: { q: 1 }, result: "found" });
    expect(await contents.eventBody(1)).toEqual({ inputs: null });
    expect(await contents.rawStep(id(2))).toMatchObject({ id: id(2), values: [{ node_id: "Message:0" }] });
  });

  test("tells outputs that a step has written for a container from its own", async () => {
    const rows = [
      { activation_id: id(2), node_id: "Iteration:0", inputs: {}, outputs: { all: [1] } },
      { activation_id: id(2), node_id: "Message:0", inputs: {}, outputs: { content: "x" } },
    ];
    const { contents } = await read(runDocument({ values: rows }));

    const values = await contents.stepValues(id(2));

    expect(values.outputs).toEqual({ content: "x" });
    expect(values.written).toEqual({ "Iteration:0": { all: [1] } });
  });

  test("of a later release with new members is read", async () => {
    const { state } = await read(runDocument({ new_list: [{ a: 1 }], new_object: { b: 2 } }));

    expect(state.steps.count).toBe(2);
  });

  test("without its version has no graph", async () => {
    const { state } = await read(runDocument({ version: null, graph: null }));

    expect(state.graph).toBeNull();
  });

  test("that waits has its open form", async () => {
    const body = { forms: { "Form:0": { inputs: { name: { name: "Name", type: "line" } }, tips: "Who?" } } };
    const events = [{ number: 1, event: "user_inputs", activation_id: null, item: null, node_id: null, at: null, body }];

    const { state } = await read(runDocument({ events }, { status: "waiting", finished_at: null }));

    expect(state.forms).toEqual([{ nodeId: "Form:0", tips: "Who?", fields: [{ key: "name", name: "Name", type: "line", isOptional: false, options: [], value: null }] }]);
  });

  test("with many steps reports progress and lets the page draw", async () => {
    const activations = Array.from({ length: 20_000 }, (_, at) => activation(at, "LLM:0"));
    const reported: number[] = [];
    const store = new RunStore();

    await readRunFile(fileOf(runDocument({ activations })), store, {
      signal: new AbortController().signal,
      onProgress: ({ readBytes }) => reported.push(readBytes),
    });

    expect(store.getState().steps.count).toBe(20_000);
    expect(reported.length).toBeGreaterThan(2);
    expect(reported).toEqual(reported.toSorted((a, b) => a - b));
  });

  test("whose reading is cancelled changes nothing", async () => {
    const aborter = new AbortController();
    const store = new RunStore();
    const activations = Array.from({ length: 20_000 }, (_, at) => activation(at, "LLM:0"));

    const reading = readRunFile(fileOf(runDocument({ activations })), store, { signal: aborter.signal, onProgress: () => aborter.abort() });

    await expect(reading).rejects.toThrow();
    expect(store.getState().steps.count).toBe(0);
  });
});

describe("a file that is no exported run is refused with what is wrong:", () => {
  const without = (name: string): Record<string, unknown> => {
    const document = runDocument();
    delete document[name];
    return document;
  };
  test.each([
    ["empty", "", "The file is empty."],
    ["another JSON", { name: "package" }, 'its "format" is not "easel-run/1"'],
    ["a canvas", { components: {}, graph: { nodes: [] } }, "not an exported run"],
    ["a list", [1, 2], "not a JSON object"],
    ["no JSON", "PK\u0003\u0004 a zip", "not a JSON object"],
    ["a newer format", runDocument({ format: "easel-run/2" }), "which a newer release of Easel has written"],
    ["another format", runDocument({ format: "easel-run/0" }), "is not known"],
    ["a foreign format", runDocument({ format: "trace/1" }), "not an exported run"],
    ["without run", without("run"), 'no member "run"'],
    ["without steps", without("activations"), 'no member "activations"'],
    ["a row without id", runDocument({ activations: [activation(1, "begin"), { node_id: "x" }] }), '"activations[1]" has no valid "id"'],
    ["a row that is no object", runDocument({ events: [3] }), '"events[0]" has no valid "row"'],
  ])("%s", async (_, document, problem) => {
    const error = await errorOf(fileOf(document));

    expect(error.problem).toContain(problem);
    expect(error.remedy).not.toBe("");
  });

  test("cut off in the middle of a list", async () => {
    const text = JSON.stringify(runDocument());
    const error = await errorOf(fileOf(text.slice(0, text.indexOf('"events"') + 30)));

    expect(error.problem).toBe('The file ends too early in "events": its last part is missing.');
    expect(error.remedy).toContain("easel export-run");
  });

  test("damaged within a row", async () => {
    const text = JSON.stringify(runDocument()).replace('"tool_name":"search"', '"tool_name":search');
    const error = await errorOf(fileOf(text));

    expect(error.problem).toMatch(/not valid JSON in "tool_calls", at byte [\d,]+\./);
  });

  test("larger than the limit", async () => {
    const file = Object.defineProperty(fileOf("{}"), "size", { value: MAX_FILE_BYTES + 1 });

    expect((await errorOf(file)).problem).toContain("256 MiB");
  });

  test("no UTF-8", async () => {
    const bytes = new Uint8Array([...new TextEncoder().encode('{"format":"'), 0xff, 0x22, 0x7d]);

    expect((await errorOf(new Blob([bytes]))).problem).toContain("not a JSON object");
  });
});
