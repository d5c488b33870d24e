import { expect, test } from "vitest";

import { differenceOf } from "../src/versions/difference";
import { graphOf } from "../src/versions/document";
import { formatJson, memberText } from "../src/versions/json-text";
import { lineChanges, unifiedPatch } from "../src/versions/unified-patch";

type Fields = Record<string, unknown>;

interface Drawn {
  id: string;
  label: string;
  form: Fields;
  x?: number;
  name?: string;
}

/** A document with a drawing, and entries that follow from it. */
function documentOf(nodes: readonly Drawn[], edges: readonly [string, string, string?][], more: Fields = {}): Fields {
  return {
    components: Object.fromEntries(
      nodes
        .filter(({ label }) => label !== "Note")
        .map(({ id, label, form }) => [id, { obj: { component_name: label, params: form }, downstream: edges.filter(([from]) => from === id).map(([, to]) => to), upstream: [] }]),
    ),
    graph: {
      nodes: nodes.map(({ id, label, form, x = 0, name }) => ({ id, position: { x, y: 0 }, data: { label, name: name ?? id, form } })),
      edges: edges.map(([source, target, sourceHandle = "start"]) => ({ id: `${source}${sourceHandle}${target}`, source, target, sourceHandle, targetHandle: "end" })),
    },
    globals: { "sys.query": "", "env.count": 1 },
    variables: { count: { type: "number", value: 1 } },
    history: [],
    ...more,
  };
}

const BEGIN = { id: "begin", label: "Begin", form: {} };
const LLM = { id: "LLM:A", label: "LLM", form: { llm_id: "echo@Easel", prompts: [{ role: "user", content: "{sys.query}" }], outputs: { content: { type: "string", value: "" } } } };
const MESSAGE = { id: "Message:A", label: "Message", form: { content: ["{LLM:A@content}"] } };
const BASE = documentOf([BEGIN, LLM, MESSAGE], [["begin", "LLM:A"], ["LLM:A", "Message:A"]]);

const changed = (form: Fields): Fields => documentOf([BEGIN, { ...LLM, form: { ...LLM.form, ...form } }, MESSAGE], [["begin", "LLM:A"], ["LLM:A", "Message:A"]]);

// T059
test.each<[string, Fields, Fields[]]>([
  ["a parameter", changed({ llm_id: "m@OpenAI" }), [{ path: "llm_id", kind: "changed", before: "echo@Easel", after: "m@OpenAI" }]],
  ["a parameter that is new", changed({ cite: true }), [{ path: "cite", kind: "added", before: undefined, after: true }]],
  ["a text in a list of objects", changed({ prompts: [{ role: "user", content: "Hi {sys.query}" }] }), [{ path: "prompts[0].content", kind: "changed", before: "{sys.query}", after: "Hi {sys.query}" }]],
  [
    "a list that has become longer",
    changed({ prompts: [...LLM.form.prompts, { role: "user", content: "again" }] }),
    [{ path: "prompts", kind: "changed", before: LLM.form.prompts, after: [...LLM.form.prompts, { role: "user", content: "again" }] }],
  ],
  ["what a run has left in an output", changed({ outputs: { content: { type: "string", value: "an answer" } } }), []],
])("difference of a node names %s", (_, document, changes) => {
  const difference = differenceOf(BASE, document);

  expect(difference.nodes.map(({ id, kind, changes: found }) => ({ id, kind, found }))).toEqual(changes.length ? [{ id: "LLM:A", kind: "changed", found: changes }] : []);
  expect(difference.runsDiffer).toBe(changes.length > 0);
});

// T059
test("difference of two documents names added and removed nodes, and their edges by name and branch", () => {
  const router = { id: "Categorize:A", label: "Categorize", name: "Kind", form: { items: [{ name: "Invoice", uuid: "u1" }] } };
  const after = documentOf([BEGIN, router, MESSAGE], [["begin", "Categorize:A"], ["Categorize:A", "Message:A", "u1"]]);

  const { nodes, edges, runsDiffer } = differenceOf(BASE, after);

  expect(nodes.map(({ id, kind }) => [id, kind])).toEqual([["Categorize:A", "added"], ["LLM:A", "removed"]]);
  expect(edges.map(({ kind, fromName, toName, branch }) => [kind, fromName, toName, branch])).toEqual([
    ["added", "begin", "Kind", null],
    ["added", "Kind", "Message:A", "Invoice"],
    ["removed", "begin", "LLM:A", null],
    ["removed", "LLM:A", "Message:A", null],
  ]);
  expect(runsDiffer).toBe(true);
});

test("moved nodes, notes and the state of a conversation are no difference in what runs", () => {
  const note = { id: "Note:1", label: "Note", form: { text: "remember" } };
  const moved = documentOf([BEGIN, { ...LLM, x: 300 }, MESSAGE, note], [["begin", "LLM:A"], ["LLM:A", "Message:A"]], { history: [["user", "hi"]], globals: { "sys.query": "hi", "env.count": 1 } });

  const difference = differenceOf(BASE, moved);

  expect(difference.moved).toEqual([{ id: "LLM:A", name: "LLM:A" }]);
  expect(difference.nodes.map(({ id, kind }) => [id, kind])).toEqual([["Note:1", "added"]]);
  expect([difference.runsDiffer, difference.isSame]).toEqual([false, false]);
  expect(differenceOf(BASE, { dsl: BASE })).toMatchObject({ isSame: true, runsDiffer: false, moved: [] });
});

test("variables, globals and unknown members are compared", () => {
  const { variables, others } = differenceOf(BASE, { ...BASE, variables: { count: { type: "number", value: 2 } }, globals: { "env.count": 2, "env.other": 1 }, on_unknown: "ask" });

  expect(variables.map(({ path }) => path)).toEqual(["count.value"]);
  expect(others.map(({ path, kind }) => [path, kind])).toEqual([["globals.env.other", "added"], ["on_unknown", "added"]]);
});

test("sub-agent is compared as a node of its own, and the order of categories counts", () => {
  const team = (prompt: string): Fields => {
    const sub = { component_name: "Agent", id: "Agent:Sub", name: "Sub", params: { sys_prompt: prompt } };
    const document = documentOf([BEGIN, { id: "Agent:Top", label: "Agent", form: { tools: [] } }, { id: "Agent:Sub", label: "Agent", form: { sys_prompt: prompt } }], []);
    const components = document.components as Record<string, Fields>;
    delete components["Agent:Sub"];
    components["Agent:Top"] = { obj: { component_name: "Agent", params: { tools: [sub] } }, downstream: [] };
    return document;
  };
  const router = (...names: string[]): Fields => ({
    components: { a: { obj: { component_name: "Categorize", params: { category_description: Object.fromEntries(names.map((name) => [name, { to: [] }])) } } } },
  });

  expect(differenceOf(team("one"), team("two")).nodes.map(({ id, changes }) => [id, changes.map(({ path }) => path)])).toEqual([["Agent:Sub", ["sys_prompt"]]]);
  expect(differenceOf(router("x", "y"), router("y", "x")).nodes[0]?.changes.map(({ path }) => path)).toEqual(["category_description"]);
});

test("graph of a document has its nodes, branches and edges, drawn or not", () => {
  const graph = graphOf(documentOf([BEGIN, { ...LLM, x: 300 }], [["begin", "LLM:A"]]));
  const undrawn = graphOf({ components: BASE.components });

  expect([graph.drawn, graph.nodes.map(({ id, x }) => [id, x]), graph.edges.map(({ from, to }) => `${from}>${to}`)]).toEqual([true, [["begin", 0], ["LLM:A", 300]], ["begin>LLM:A"]]);
  expect([undrawn.drawn, undrawn.nodes.length, undrawn.edges.length]).toEqual([false, 3, 2]);
  expect(graphOf({}).nodes).toEqual([]);
});

test("JSON text keeps numbers and the order of keys", () => {
  const text = '{"now": 1, "document":{"b":1.0,"a":1152921504606846976,"2":[],"1":{},"text":"a \\"q\\" {,} \\u00e9","list":[true,null,-1e3]}}';

  expect(formatJson(memberText(text, "document") ?? "")).toBe(
    '{\n  "b": 1.0,\n  "a": 1152921504606846976,\n  "2": [],\n  "1": {},\n  "text": "a \\"q\\" {,} é",\n  "list": [\n    true,\n    null,\n    -1e3\n  ]\n}\n',
  );
  expect(memberText(text, "nothing")).toBeNull();
});

/** Apply a unified patch as `patch` does. */
function patched(text: string, patch: string): string {
  const lines = text.split("\n").slice(0, -1);
  const out: string[] = [];
  let at = 0;
  for (const line of patch.split("\n").slice(2, -1)) {
    const hunk = /^@@ -(\d+)(?:,(\d+))? /.exec(line);
    if (hunk) {
      const start = Number(hunk[1]) - (hunk[2] === "0" ? 0 : 1);
      out.push(...lines.slice(at, start));
      at = start;
    } else if (line.startsWith("+")) out.push(line.slice(1));
    else {
      expect(lines[at]).toBe(line.slice(1));
      if (line.startsWith(" ")) out.push(line.slice(1));
      at++;
    }
  }
  return [...out, ...lines.slice(at)].map((line) => `${line}\n`).join("");
}

test("patch of random texts makes the second of the first", () => {
  let seed = 7;
  const random = (below: number): number => (seed = (seed * 1103515245 + 12345) % 2147483648) % below;
  for (let round = 0; round < 200; round++) {
    const a = Array.from({ length: random(40) }, () => `line ${random(6)}`);
    const b = a.flatMap((line) => (random(4) ? [line] : random(2) ? [] : [line, `new ${random(3)}`]));
    const [textA, textB] = [a, b].map((lines) => lines.map((line) => `${line}\n`).join("")) as [string, string];

    expect(patched(textA, unifiedPatch(textA, textB, "a", "b"))).toBe(textB);
  }
});

test("lines that all differ are one change, and equal texts none", () => {
  const [a, b] = ["a", "b"].map((letter) => Array.from({ length: 3000 }, (_, index) => `${letter}${index}`)) as [string[], string[]];

  expect(lineChanges(a, b)).toEqual([{ fromA: 0, toA: 3000, fromB: 0, toB: 3000 }]);
  expect(unifiedPatch("x\n", "x\n", "a", "b")).toBe("");
});
