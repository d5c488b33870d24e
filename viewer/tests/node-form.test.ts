/** The pure parts of the forms of nodes: fields of schemas, paths, findings, references in texts, and the catalogue. */
import { describe, expect, it } from "vitest";

import { parseCatalogue } from "../src/catalogue/parse-catalogue";
import type { Finding, ReferenceChoice } from "../src/node-form/contract";
import { changeAt, fieldInForm, isSame, pathText, placeFindings, withValue } from "../src/node-form/form-paths";
import { fieldOf, fieldsOf, otherKeys, shownFields } from "../src/node-form/form-schema";
import { handleOf } from "../src/node-form/nodes-field";
import { choiceOf, findReferences } from "../src/node-form/reference-chips";
import { findChoices } from "../src/node-form/reference-picker";
import { referencesAt } from "../src/node-form/references";

const WIDGET = "x-easel-widget";

function finding(field: string | null, code = "invalid"): Finding {
  return { nodeId: "n", field, message: "", code, severity: "warning" };
}

describe("fields of a schema", () => {
  it("are in their order, and have the widget of their type", () => {
    const fields = fieldsOf({
      properties: {
        b: { type: ["boolean", "null"], title: "B", "x-easel-order": 2 },
        a: { type: ["number", "string", "null"], title: "A", "x-easel-order": 1 },
        c: { enum: ["x", "", null], title: "C", "x-easel-order": 3, default: "x" },
        d: { type: ["array", "null"], title: "D", "x-easel-order": 4, items: { type: "object", properties: { name: { type: "string" } } } },
        e: { type: ["object", "array", "null"], title: "E", "x-easel-order": 5 },
      },
    });
    expect(fields.map((each) => [each.name, each.widget])).toEqual([["a", "number"], ["b", "switch"], ["c", "choice"], ["d", "rows"], ["e", "json"]]);
    expect(fields[2]?.options).toEqual(["x"]);
  });

  it.each([
    ["a list of texts", { type: ["array", "null"], [WIDGET]: "prompts" }, "texts"],
    ["messages", { type: ["array", "null"], [WIDGET]: "prompts", items: { properties: { role: {} } } }, "rows"],
    ["rows without fields", { type: ["array", "null"], [WIDGET]: "rows", items: {} }, "json"],
    ["an unknown widget", { type: "string", [WIDGET]: "hologram" }, "text"],
    ["any value", { type: ["string", "number", "boolean", "object", "array", "null"], [WIDGET]: "prompt" }, "prompt"],
  ])("%s has its widget", (_, schema, widget) => {
    expect(fieldOf("x", schema).widget).toBe(widget);
  });

  it("are shown by the values of others, whose defaults count", () => {
    const fields = fieldsOf({
      properties: {
        method: { enum: ["split", "merge"], default: "split" },
        script: { type: "string", "x-easel-when": { method: ["merge"] } },
        split_ref: { type: "string", "x-easel-when": { method: ["split"] } },
        value: { type: "string", "x-easel-widgets": { number: { method: ["merge"] } } },
        old: { type: "string", [WIDGET]: "hidden" },
      },
    });
    expect(shownFields(fields, {}).map((each) => each.name)).toEqual(["method", "split_ref", "value"]);
    expect(shownFields(fields, { method: "merge" }).map((each) => [each.name, each.widget])).toContainEqual(["value", "number"]);
    expect(otherKeys(fields, { method: "split", old: 1, unknown: 2 })).toEqual(["unknown"]);
  });
});

describe("changes", () => {
  it("name the path of what has changed", () => {
    expect(changeAt({ rows: [{ a: 1 }] }, {}, ["rows", 0, "a"], 2)).toEqual({ path: ["rows", 0, "a"], value: 2 });
  });

  it("inside of a default write the whole default", () => {
    const defaults = { prompts: [{ role: "user", content: "{sys.query}" }] };
    expect(changeAt({}, defaults, ["prompts", 0, "content"], "Hi")).toEqual({ path: ["prompts"], value: [{ role: "user", content: "Hi" }] });
    expect(defaults.prompts[0]?.content).toBe("{sys.query}");
  });

  it("inside of what is missing make the objects around it", () => {
    expect(changeAt({ outputs: {} }, {}, ["outputs", "structured", "type"], "object")).toEqual({ path: ["outputs", "structured"], value: { type: "object" } });
  });

  it("set, add and remove", () => {
    expect(withValue([1, 2, 3], [1], undefined)).toEqual([1, 3]);
    expect(withValue([1], [1], 2)).toEqual([1, 2]);
    expect(withValue({ a: 1, b: 2 }, ["a"], undefined)).toEqual({ b: 2 });
  });

  it("are none between values that are equal", () => {
    expect(isSame({ a: [1, { b: null }] }, { a: [1, { b: null }] })).toBe(true);
    expect(isSame({ a: undefined }, {})).toBe(false);
    expect(isSame([1], { 0: 1 })).toBe(false);
  });
});

describe("findings", () => {
  it("are at the innermost field that is shown", () => {
    const fields = ["conditions", "conditions[0].items", "conditions[0].items[0].cpn_id", "conditions[1].items"];
    const placed = placeFindings([finding("conditions[0].items[0].cpn_id"), finding("conditions[0].items[9].operator"), finding("conditions[10].to"), finding(null), finding("gone")], {}, fields);
    expect([...placed].map(([field, listed]) => [field, listed.length])).toEqual([
      ["conditions[0].items[0].cpn_id", 1],
      ["conditions[0].items", 1],
      ["conditions", 1],
      ["", 2],
    ]);
  });

  it("of categories are at their rows", () => {
    const form = { items: [{ name: "A.b" }, { name: "A" }] };
    expect(fieldInForm("category_description.A.b.to", form)).toBe("items[0].to");
    expect(fieldInForm("category_description.A.to", form)).toBe("items[1].to");
    expect(fieldInForm("category_description", form)).toBe("items");
    expect(fieldInForm("category_description", {})).toBe("category_description");
    expect(pathText(["items", 0, "examples", 1, "value"])).toBe("items[0].examples[1].value");
  });
});

describe("handles of branches", () => {
  const handles = { in: ["end"], out: [], per: { field: "items", handle: "{uuid}" } };

  it("are those of the row", () => {
    expect(handleOf(handles, ["items", 1, "to"], { items: [{}, { uuid: "u" }] })).toBe("u");
    expect(handleOf(handles, ["items", 0, "to"], { items: [{}] })).toBeNull();
    expect(handleOf({ in: [], out: [], per: { field: "conditions", handle: "Case {n}", else: "end_cpn_ids" } }, ["conditions", 1, "to"], {})).toBe("Case 2");
    expect(handleOf({ in: [], out: [], per: { field: "conditions", handle: "Case {n}", else: "end_cpn_ids" } }, ["end_cpn_ids"], {})).toBe("end_cpn_ids");
    expect(handleOf({ in: [], out: ["agentException"] }, ["exception_goto"], {})).toBe("agentException");
    expect(handleOf({ in: [], out: [] }, ["exception_goto"], {})).toBeNull();
  });
});

describe("references in a text", () => {
  const choices: ReferenceChoice[] = [
    { reference: "LLM:A@content", label: "content", group: "Reply", type: "string" },
    { reference: "sys.query", label: "sys.query", group: "sys", type: "string" },
  ];

  it("are found with their paths, and nothing else is", () => {
    const text = "{LLM:A@content.items[0].x} {{sys.query}} { env.a } {item} {a b} {{ x | upper }} {LLM:A}";
    expect(findReferences(text).map((each) => each.reference)).toEqual(["LLM:A@content.items[0].x", "sys.query", "env.a", "item"]);
  });

  it("belong to the choice that they begin with", () => {
    expect(choiceOf("LLM:A@content.items", choices)).toEqual({ choice: choices[0], rest: ".items" });
    expect(choiceOf("LLM:A@contents", choices)).toBeNull();
  });

  it("are searched by all words in name, node and type", () => {
    expect(findChoices(choices, "reply STRING").map((each) => each.reference)).toEqual(["LLM:A@content"]);
    expect(findChoices(choices, "")).toHaveLength(2);
  });
});

describe("references at a node", () => {
  const node = (id: string, label: string, form: object = {}, parentId?: string): object => ({ id, ...(parentId ? { parentId } : {}), data: { label, name: `name of ${id}`, form } });
  const edge = (source: string, target: string, handles: object = {}): object => ({ source, target, ...handles });
  const document = {
    variables: { limit: { type: "number" } },
    graph: {
      nodes: [
        node("begin", "Begin", { inputs: { city: { type: "line" } } }),
        node("Iteration:I", "Iteration", { outputs: { all: { type: "Array<string>", ref: "" } } }),
        node("IterationItem:S", "IterationItem", { outputs: { item: { type: "string" } } }, "Iteration:I"),
        node("LLM:In", "LLM", { outputs: { content: { type: "string" } } }, "Iteration:I"),
        node("Message:After", "Message"),
        node("Agent:Top", "Agent", { outputs: { content: {} } }),
        node("Agent:Sub", "Agent", { outputs: { content: {} } }),
        node("Note:N", "Note"),
      ],
      edges: [
        edge("begin", "Iteration:I"),
        edge("IterationItem:S", "LLM:In"),
        edge("Iteration:I", "Agent:Top"),
        edge("Agent:Top", "Message:After"),
        edge("Agent:Top", "Agent:Sub", { sourceHandle: "agentBottom", targetHandle: "agentTop" }),
      ],
    },
  };
  const at = (nodeId: string): string[] => referencesAt(document, nodeId, parseCatalogue({ components: [] })).map((each) => each.reference);

  it("inside of a container have item and index, which others do not", () => {
    expect(at("LLM:In")).toEqual(expect.arrayContaining(["item", "index", "result", "IterationItem:S@item"]));
    expect(at("Message:After")).not.toContain("item");
  });

  it("are those of nodes before, and never of nodes after", () => {
    expect(at("Agent:Top")).toEqual(expect.arrayContaining(["begin@city", "Iteration:I@all", "env.limit", "sys.query"]));
    expect(at("Iteration:I")).not.toContain("Agent:Top@content");
    expect(at("Agent:Top")).not.toContain("Agent:Top@content");
  });

  it("of a sub-agent are those of the agent above it", () => {
    expect(at("Agent:Sub")).toEqual(at("Agent:Top"));
  });

  it("are named and typed, the nearest node first", () => {
    const found = referencesAt(document, "Message:After", parseCatalogue({ components: [] }));
    expect(found[0]).toEqual({ reference: "Agent:Top@content", label: "content", group: "name of Agent:Top", type: "unknown" });
    expect(found.find((each) => each.reference === "env.limit")?.type).toBe("number");
  });
});

describe("a catalogue", () => {
  it("has what its reply describes, and leaves out what it cannot read", () => {
    const catalogue = parseCatalogue({
      build: "1",
      groups: [{ id: "flow", title: "Flow" }, 3],
      components: [{ name: "A", params: {}, kind: "odd", outputs: [{ name: "x" }, {}], handles: { in: ["end", 1], per: { field: "f", handle: "h" } } }, { name: "B" }, null],
      tools: [{ name: "T", params: {} }],
    });
    expect(catalogue.components.map((each) => each.name)).toEqual(["A"]);
    expect(catalogue.components[0]).toMatchObject({ title: "A", kind: "ordinary", outputs: [{ name: "x", type: "unknown" }], handles: { in: ["end"], out: [], per: { field: "f", handle: "h" } } });
    expect(catalogue.tools[0]).toMatchObject({ isTool: true, nodeType: "toolNode" });
  });

  it("that is none is refused", () => {
    expect(() => parseCatalogue({ code: "x" })).toThrow(TypeError);
  });
});
