/** What dialogs of reruns and forks send, and how a copy is described. */
import { describe, expect, it } from "vitest";

import { editKey, forkBody, isSent, newEdit, rebased, shownTexts } from "../src/fork/edits";
import { paramsOf, variablesOf } from "../src/fork/document";
import { parsePlace, placeOf, placeOfPoint } from "../src/fork/places";
import { beginFields, typedInputs } from "../src/rerun/begin-form";
import { budgetOf, NO_BUDGET } from "../src/rerun/budget";
import { rerunBody, type TypedRerun } from "../src/rerun/rerun-body";
import { editText, placeText } from "../src/run/origin-texts";
import { StepTable, type Step } from "../src/store/steps";

const id = (number: number): string => String(number).padStart(32, "0");

function stepsOf(...rows: readonly [nodeId: string, scope?: string, ordinal?: number][]): { steps: StepTable } {
  const steps = new StepTable();
  rows.forEach(([nodeId, scope = "", ordinal = 0], place) =>
    steps.upsert({ id: id(place), nodeId, scope, ordinal, orderKey: String(place), status: "done", component: "LLM", attempt: 1, crashCount: 0 } as Step),
  );
  return { steps };
}

const DOCUMENT = {
  components: {
    begin: {
      obj: { component_name: "Begin", params: { inputs: { name: { type: "line", name: "Name" }, pin: { type: "password", name: "Pin" }, doc: { type: "file", name: "File", optional: true } } } },
    },
    "LLM:0": { obj: { component_name: "LLM", params: { temperature: 0.5, llm_id: "echo", sys_prompt: "Hi", headers: { key: "••••12345678" } } } },
  },
  globals: { "sys.query": "", "sys.date": "", "env.tone": "plain", "env.key": "••••12345678" },
  variables: { tone: { value: "plain" }, size: { value: 3 } },
};
const ORIGINAL = { query: "hello", inputs: { name: { value: "Ada", type: "line" }, pin: "••••" } };
const TYPED: TypedRerun = { query: "hello", form: null, inputs: "", files: "keep", version: "same", conversation: "new", isAsThen: false, budget: NO_BUDGET };

describe("the body of a rerun", () => {
  const fields = beginFields(DOCUMENT);

  it("is empty where nothing was changed", () => {
    expect(rerunBody(TYPED, ORIGINAL, fields)).toEqual({ body: {} });
    expect(rerunBody({ ...TYPED, form: typedInputs(fields, ORIGINAL.inputs) }, ORIGINAL, fields)).toEqual({ body: {} });
  });

  it("has all inputs with their types when one was changed, and asks for a password that is not known", () => {
    const form: Readonly<Record<string, unknown>> = { ...typedInputs(fields, ORIGINAL.inputs), name: "Bob" };
    expect(form.pin).toBeNull();
    expect(rerunBody({ ...TYPED, form }, ORIGINAL, fields)).toMatchObject({ errors: { form: { pin: expect.any(String) as string } } });
    expect(rerunBody({ ...TYPED, form: { ...form, pin: "1234" } }, ORIGINAL, fields)).toEqual({
      body: { inputs: { name: { value: "Bob", type: "line", optional: false }, pin: { value: "1234", type: "password", optional: false } } },
    });
  });

  it("has what was chosen", () => {
    const typed: TypedRerun = { ...TYPED, query: "bye", files: [{ id: "f" }], version: "draft", conversation: "same", isAsThen: true, budget: { ...NO_BUDGET, tokens: "100" } };
    expect(rerunBody(typed, { query: "hello", inputs: null }, [])).toEqual({
      body: { query: "bye", files: [{ id: "f" }], version: "draft", conversation: "same", answers: "as_then", budget: { tokens: 100 } },
    });
  });

  it("takes JSON where the query is an object or there is no form", () => {
    const typed = { ...TYPED, query: '{"a": 2}', inputs: '{"b": 1}' };
    expect(rerunBody(typed, { query: { a: 1 }, inputs: null }, [])).toEqual({ body: { query: { a: 2 }, inputs: { b: 1 } } });
    expect(rerunBody({ ...typed, query: "[1", inputs: "[]" }, { query: { a: 1 }, inputs: null }, [])).toHaveProperty("errors.query");
    expect(rerunBody({ ...typed, inputs: "[]" }, { query: { a: 1 }, inputs: null }, [])).toHaveProperty("errors.inputs");
  });
});

describe("a budget", () => {
  it.each([
    [{}, { budget: null }],
    [{ tokens: "10", seconds: "1.5" }, { budget: { tokens: 10, seconds: 1.5 } }],
    [{ money: "0.5", currency: "eur" }, { budget: { money: 0.5, currency: "EUR" } }],
  ])("of %j is %j", (typed, expected) => expect(budgetOf({ ...NO_BUDGET, ...typed })).toEqual(expected));

  it.each([{ tokens: "0" }, { tokens: "1.5" }, { calls: "x" }, { money: "1", currency: "euro" }])("of %j is refused", (typed) =>
    expect(budgetOf({ ...NO_BUDGET, ...typed })).toHaveProperty("error"),
  );
});

describe("the place of a step", () => {
  const run = stepsOf(["begin"], ["LLM:0"], ["Check", "It#0.0"], ["Check", "It#0.1"], ["Again"], ["Again", "", 1], ["Deep", "It#0.2/In#0.5"]);

  it.each([
    [0, "begin"],
    [3, "Check[1]"],
    [5, id(5)], // the name means the first pass too
    [6, "Deep[2.5]"],
  ])("%d is named %s", (row, place) => expect(placeOf(run, id(row))).toBe(place));

  it("is the node where all its steps are meant", () => expect(placeOfPoint(run, { nodeId: "Check", stepId: null })).toBe("Check"));

  it("is read back", () => {
    expect(parsePlace("Check[1.2]")).toEqual({ nodeId: "Check", items: [1, 2] });
    expect(parsePlace(id(3))).toBeNull();
  });
});

describe("the body of a fork", () => {
  const typed = { place: "LLM:0", version: "same", fields: [], edits: [], isAsThen: false, budget: NO_BUDGET };
  const prompt = newEdit("param", "LLM:0", "sys_prompt", "sys_prompt of LLM", "Hi");

  it("leaves out edits that change nothing", () => {
    const variable = newEdit("variable", "", "env.tone", "tone", "plain");
    expect(forkBody({ ...typed, edits: [prompt, variable] })).toEqual({ body: { from: ["LLM:0"] } });
    expect(forkBody({ ...typed, edits: [prompt, { ...variable, typed: "kind" }] })).toEqual({
      body: { from: ["LLM:0"], edits: { variables: { "env.tone": "kind" } } },
    });
  });

  it("has the version that was chosen, whose values are then the originals of the edits", () => {
    const other = { components: { "LLM:0": { obj: { params: { sys_prompt: "Hello", temperature: "low" } } } } };
    const edits = [prompt, { ...prompt, typed: "Be short." }, { ...prompt, typed: "Hello" }].map((edit) => rebased(edit, other));
    expect(edits.map((edit) => [edit.original, edit.typed])).toEqual([["Hello", "Hello"], ["Hello", "Be short."], ["Hello", "Hello"]]);
    expect(edits.map(isSent)).toEqual([false, true, false]);
    expect(rebased(prompt, undefined)).toBe(prompt);
    expect(rebased(newEdit("output", "LLM:0", "sys_prompt", "", "Hi"), other).original).toBe("Hi");
    expect(forkBody({ ...typed, version: "draft" })).toEqual({ body: { from: ["LLM:0"], version: "draft" } });
  });

  it("has a secret only if another one was typed", () => {
    const secret = newEdit("param", "LLM:0", "api_key", "", "••••12345678");
    const headers = newEdit("param", "LLM:0", "headers", "", { key: "••••12345678" });
    expect([secret.isSecret, headers.isSecret, prompt.isSecret]).toEqual([true, false, false]);
    expect(forkBody({ ...typed, edits: [secret, headers] })).toEqual({ body: { from: ["LLM:0"] } });
    expect(forkBody({ ...typed, edits: [{ ...secret, typed: "new" }] })).toHaveProperty("body.edits.params", { "LLM:0": { api_key: "new" } });
    expect(forkBody({ ...typed, edits: [{ ...secret, typed: "" }] })).toHaveProperty("body.edits.params", { "LLM:0": { api_key: "" } });
  });

  it("has inputs as the form of Begin gives them, and shows no password in the difference", () => {
    const fields = beginFields(DOCUMENT);
    const inputs = newEdit("inputs", "", "", "", typedInputs(fields, ORIGINAL.inputs));
    const withName = { ...inputs, typed: JSON.stringify({ name: "Bob", pin: null, doc: null }) };
    const whole = { ...inputs, typed: JSON.stringify({ name: "Bob", pin: "1234", doc: null }) };
    expect(forkBody({ ...typed, fields, edits: [inputs] })).toEqual({ body: { from: ["LLM:0"] } });
    expect(forkBody({ ...typed, fields, edits: [withName] })).toEqual({ wrong: [editKey(inputs)], budget: null });
    expect(forkBody({ ...typed, fields, edits: [whole] })).toHaveProperty("body.edits.inputs.pin.value", "1234");
    expect(shownTexts(whole, fields).join()).not.toContain("1234");
    expect(shownTexts(whole, fields).join()).toContain("Bob");
  });

  it("puts each kind of edit at its place", () => {
    const edits = [
      { ...prompt, typed: "Be short." },
      { ...newEdit("param", "LLM:0", "temperature", "", 0.5), typed: "0.1" },
      { ...newEdit("output", "Check[1]", "content", "", "a"), typed: "b" },
      { ...newEdit("output", "Check[1]", "list", "", [1]), typed: "[2]" },
      { ...newEdit("query", "", "", "", "hello"), typed: "bye" },
      { ...newEdit("inputs", "", "", "", { a: 1 }), typed: '{"a": 2}' },
    ];
    expect(forkBody({ ...typed, edits })).toEqual({
      body: {
        from: ["LLM:0"],
        edits: { params: { "LLM:0": { sys_prompt: "Be short.", temperature: 0.1 } }, outputs: { "Check[1]": { content: "b", list: [2] } }, query: "bye", inputs: { a: 2 } },
      },
    });
  });

  it("names edits that are not valid JSON", () => {
    const edit = { ...newEdit("param", "LLM:0", "temperature", "", 0.5), typed: "0." };
    expect(forkBody({ ...typed, edits: [edit] })).toEqual({ wrong: [editKey(edit)], budget: null });
  });
});

describe("what of a document can be changed", () => {
  it("are parameters, prompts first, secrets as masks", () => {
    const values = paramsOf(DOCUMENT, "LLM:0");
    expect([...values.keys()]).toEqual(["sys_prompt", "llm_id", "temperature", "headers"]);
  });

  it("are the variables of the run, without the request and secrets", () => {
    expect([...variablesOf({ ...DOCUMENT.globals, "env.tone": "kind" })]).toEqual([["sys.date", ""], ["env.tone", "kind"]]);
  });

  it("are the variables that only the version of the fork has too, as it declares them", () => {
    const document = {
      globals: { "sys.new": "", "env.tone": "plain", "env.size": 9, "other": "as stored", "env.key": "••••12345678" },
      variables: { tone: { value: "plain" }, size: { value: 3 }, count: { type: "number" }, list: { type: "array<string>" }, key: { value: "••••12345678" } },
    };
    const expected = [["env.tone", "kind"], ["env.size", 3], ["other", "as stored"], ["env.count", 0], ["env.list", []]];
    expect([...variablesOf({ "env.tone": "kind" }, document)]).toEqual(expected);
  });

  it("begin with the value that another version gives them, unless the run had one", () => {
    const edit = newEdit("variable", "", "env.size", "size", 3);
    const [untouched, changed] = [edit, { ...edit, typed: "5" }].map((each) => rebased(each, {}, variablesOf({}, { variables: { size: { value: 4 } } })));
    expect([untouched?.original, untouched?.typed, changed?.original, changed?.typed]).toEqual(["4", "4", "4", "5"]);
    expect(rebased(edit, {}, variablesOf({ "env.size": 3 }, { variables: { size: { value: 4 } } })).original).toBe("3");
  });
});

describe("the origin of a copy", () => {
  const names = new Map([["LLM:Reply", "reply"], ["a.b", "dotted"]]);

  it.each([
    ["query", "query"],
    ["params.LLM:Reply.sys_prompt", "sys_prompt of reply"],
    ["params.a.b.x.y", "x.y of dotted"],
    ["outputs.LLM:Reply[3].content", "output content of reply, item 4"],
    [`outputs.${id(1)}.content`, "output content of a step"],
    ["variables.env.tone", "variable env.tone"],
    ["something_new", "something_new"],
  ])("says of the edit %s: %s", (edit, text) => expect(editText(edit, names)).toBe(text));

  it("says at which step a fork began", () => {
    expect(placeText("LLM:Reply", names)).toBe("reply");
    expect(placeText("Other[0.2]", names)).toBe("Other, item 1 › item 3");
  });
});
