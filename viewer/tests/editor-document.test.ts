/** The document of the editor: numbers, patches, commands, undo. */
import { describe, expect, it } from "vitest";

import { alignNodes, ALIGNMENTS, tidy } from "../src/editor/document/arrange";
import { changedByBoth, changedNodes, merge } from "../src/editor/document/changes";
import { copyNodes, pasteNodes } from "../src/editor/document/clipboard";
import { addNode, addTool, changeForm, connect, deleteNodes, disconnect, insertOnEdge, moveNodes, Refusal, renameNode, removeVariable, setVariable } from "../src/editor/document/commands";
import { connectionProblem, handlesOf } from "../src/editor/document/connections";
import { changeParent, changeParents, groupNodes, ungroup } from "../src/editor/document/containers";
import { edgesOf, graphOf, nodesOf, type Document } from "../src/editor/document/document";
import { History } from "../src/editor/document/history";
import { getIn, isEqual, objectOf, readJson, writeJson, type Json } from "../src/editor/document/json";
import { applyPatch, patchBetween, writePatch } from "../src/editor/document/patch";
import { drawnLayout } from "../src/graph/layout";
import { component, COMPONENTS, documentOf, drawing, edgesText, randomOf, recordedDocuments, TEXT } from "./editor-documents";

const [MESSAGE, LLM, SWITCH, , AGENT, ITERATION, LOOP] = COMPONENTS;

function formOf(document: Document, id: string): Record<string, unknown> {
  return nodesOf(document).get(id)?.form ?? {};
}

/** Return what is refused, in a sentence. */
function refusal(command: () => unknown): string {
  try {
    command();
  } catch (error) {
    if (error instanceof Refusal) return error.message;
    throw error;
  }
  return "";
}

describe("JSON without loss", () => {
  it.each(['{"a":1.0,"b":[1.0,2,1e400],"c":1152921504606846977,"d":-0,"e":"1.0 \\"2.0\\"","__proto__":1.0}', "[1.50]", '"1.0"', "[]", '{"a":{"b":{}}}'])("%s is written as it was read", (text) => {
    expect(writeJson(readJson(text))).toBe(text);
  });

  it("numbers keep how they were written when others change", () => {
    const document = documentOf(TEXT);
    const changed = renameNode(moveNodes(document, ["LLM:One"], 10, 0), "begin", "Start");

    expect(writeJson(changed)).toBe(TEXT.replaceAll("\n", "").replace('"x":300', '"x":310').replace('"name":"begin"', '"name":"Start"'));
  });
});

describe("patches", () => {
  it("touch nothing that has not changed", () => {
    const document = documentOf(TEXT);

    expect(writePatch(patchBetween(document, moveNodes(document, ["LLM:One"], 10, 5)))).toBe(
      '[{"op":"replace","path":"/graph/nodes/1/position/x","value":310},{"op":"replace","path":"/graph/nodes/1/position/y","value":205}]',
    );
  });

  it.each<[string, Json, Json]>([
    ["keys", { x: { a: 1, b: 2, c: 3 } }, { x: { a: 1, c: 4, d: 5 } }],
    ["a key in the middle", { x: { a: 1, c: 3 } }, { x: { a: 1, b: 2, c: 3 } }],
    ["items with ids", [{ id: "a" }, { id: "b" }, { id: "c" }], [{ id: "c", n: 1 }, { id: "d" }, { id: "a" }]],
    ["items without", [1, 2, 3, 4, 5], [1, 9, 8, 4, 5, 6]],
    ["kinds", { a: [], b: {}, c: "" }, { a: {}, b: "", c: [] }],
    ["strange keys", { "a/b": 1, "c~d": { "": 1 } }, { "a/b": 2, "c~d": { "": 2 } }],
  ])("of %s lead there and back", (_, one, other) => {
    expect(applyPatch(one, patchBetween(one, other))).toEqual(other);
    expect(applyPatch(other, patchBetween(other, one))).toEqual(one);
    expect(writeJson(applyPatch(other, patchBetween(other, one)))).toBe(writeJson(one));
  });
});

// -- T156 ----------------------------------------------------------------------------------------------------------------
type Edit = (document: Document, random: () => number) => Document;

function pick<T>(list: readonly T[], random: () => number): T {
  const found = list[Math.floor(random() * list.length)];
  if (found === undefined) throw new Refusal("There is nothing.");
  return found;
}

const EDITS: readonly Edit[] = [
  (document, random) => addNode(document, pick(COMPONENTS, random), { x: 900 * random(), y: 500 * random(), parent: null }, random).document,
  (document, random) => moveNodes(document, [pick([...nodesOf(document).keys()], random)], 10, -10),
  (document, random) => renameNode(document, pick([...nodesOf(document).keys()], random), `name ${random()}`),
  (document, random) => deleteNodes(document, [pick([...nodesOf(document).keys()], random)]),
  (document, random) => disconnect(document, [pick(edgesOf(document), random).id]),
  (document, random) => {
    const [from, to] = [pick([...nodesOf(document).values()], random), pick([...nodesOf(document).values()], random)];
    const handle = pick(handlesOf(document, from).filter((each) => each.type === "source"), random);
    return connect(document, { source: from.id, sourceHandle: handle.id, target: to.id, targetHandle: handle.id === "agentBottom" ? "agentTop" : "end" });
  },
  (document, random) => {
    const node = pick([...nodesOf(document).values()], random);
    if (node.label === "Switch") return changeForm(document, node.id, { path: ["conditions"], value: [...((node.form.conditions as Json[] | undefined) ?? []), { logical_operator: "and", items: [], to: [] }] });
    return changeForm(document, node.id, { path: ["extra"], value: random() < 0.3 ? undefined : random() });
  },
  (document, random) => groupNodes(document, [pick([...nodesOf(document).keys()], random)], pick(["Iteration", "Loop"] as const, random), {}, random).document,
  (document, random) => ungroup(document, pick([...nodesOf(document).values()].filter((node) => ["Iteration", "Loop"].includes(node.label)), random).id),
  (document, random) => pasteNodes(document, copyNodes(document, [pick([...nodesOf(document).keys()], random)]), 40, random).document,
  (document, random) => insertOnEdge(...Object.values(addNode(document, LLM, { x: 0, y: 0, parent: null }, random)) as [Document, string], pick(edgesOf(document), random).id),
  (document, random) => addTool(document, pick([...nodesOf(document).values()].filter((node) => node.label === "Agent"), random).id, { name: "TavilySearch", defaults: {} }, random),
  (document, random) => setVariable(document, null, { name: `v${Math.floor(random() * 9)}`, type: "string", value: "x", description: "" }),
  (document) => removeVariable(document, "env1"),
  (document, random) => alignNodes(document, [...nodesOf(document).keys()].slice(0, 3), pick(ALIGNMENTS, random)),
  (document, random) => changeParent(document, pick([...nodesOf(document).keys()], random), pick([null, ...[...nodesOf(document).values()].filter((node) => node.label === "Loop").map((node) => node.id)], random), { x: 100, y: 100 }),
];

function checkConsistency(document: Document): void {
  const nodes = nodesOf(document);
  for (const edge of edgesOf(document)) {
    const [from, to] = [nodes.get(edge.source), nodes.get(edge.target)];
    expect([edge, from !== undefined && to !== undefined]).toEqual([edge, true]);
    if (from && to) expect([edge, from.parent]).toEqual([edge, to.parent]);
    expect(edge.source).not.toBe(edge.target);
  }
  for (const node of nodes.values()) {
    if (node.parent !== null) expect([...nodes.keys()].indexOf(node.parent)).toBeLessThan([...nodes.keys()].indexOf(node.id));
    if (node.label !== "Switch") continue;
    const targets = (handle: string): string[] => edgesOf(document).filter((edge) => edge.source === node.id && edge.sourceHandle === handle).map((edge) => edge.target);
    ((node.form.conditions as { to?: string[] }[] | undefined) ?? []).forEach((row, index) => expect(new Set(row.to ?? [])).toEqual(new Set(targets(`Case ${index + 1}`))));
  }
}

describe("undo", () => {
  it.each(Array.from({ length: 20 }, (_, seed) => seed))("takes back 50 random edits, saved in between, and redo does them again (seed %i)", (seed) => {
    const random = randomOf(seed);
    const first = documentOf(TEXT);
    const history = new History();
    let now = first;
    let stored: Json = first;
    const save = (): void => {
      stored = applyPatch(stored, JSON.parse(writePatch(patchBetween(stored, now))) as ReturnType<typeof patchBetween>);
      expect(isEqual(stored, now)).toBe(true);
    };
    for (let done = 0; done < 50; ) {
      const before = now;
      try {
        now = pick(EDITS, random)(before, random);
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        continue;
      }
      if (now === before) continue;
      checkConsistency(now);
      history.add("edit", before, now);
      done++;
      if (random() < 0.2) save();
    }
    const last = now;
    for (let undone = history.undo(); undone !== null; undone = history.undo()) {
      now = undone;
      if (random() < 0.2) save();
    }
    save();
    expect(writeJson(now)).toBe(writeJson(first));
    for (let redone = history.redo(); redone !== null; redone = history.redo()) now = redone;
    save();
    expect(now).toBe(last);
  });

  it("joins what is typed into a field, and nothing else", () => {
    const history = new History();
    const [a, b, c, d] = [drawing("begin>LLM:a"), drawing("begin>LLM:b"), drawing("begin>LLM:c"), drawing("begin>LLM:d")];
    history.add("type", a, b, "field");
    history.add("type", b, c, "field");
    history.add("type", c, d, "other field");

    expect([history.undo(), history.undo(), history.undo()]).toEqual([c, a, null]);
  });
});

// -- T152 ----------------------------------------------------------------------------------------------------------------
describe("connections", () => {
  const document = drawing("begin>LLM:a, LLM:a>Message:b, Agent:x/agentBottom>Agent:sub, Agent:y>Message:b, Note:n>, Loop:l>Message:b");
  const inside = changeParent(groupNodes(document, ["LLM:a"], "Iteration", {}).document, "Agent:y", null, { x: 0, y: 0 });

  it.each([
    ["itself", { source: "LLM:a", target: "LLM:a" }, "itself"],
    ["Begin", { source: "LLM:a", target: "begin" }, "Begin"],
    ["a note", { source: "LLM:a", target: "Note:n" }, "note"],
    ["what it leads to already", { source: "LLM:a", target: "Message:b" }, "already"],
    ["a sub-agent of another", { source: "Agent:y", sourceHandle: "agentBottom", target: "Agent:sub", targetHandle: "agentTop" }, "one Agent"],
    ["a sub-agent as a step", { source: "LLM:a", target: "Agent:sub" }, "sub-agent"],
    ["a step as a sub-agent", { source: "Agent:x", sourceHandle: "agentBottom", target: "Agent:y", targetHandle: "agentTop" }, "flow"],
    ["an Agent above", { source: "Agent:sub", sourceHandle: "agentBottom", target: "Agent:x", targetHandle: "agentTop" }, "above"],
  ])("to %s are refused with a sentence", (_, connection, words) => {
    const whole = { sourceHandle: "start", targetHandle: "end", ...connection };

    expect(connectionProblem(document, whole)).toContain(words);
    expect(refusal(() => connect(document, whole))).toContain(words);
  });

  it("across the border of a container are refused", () => {
    const connection = { source: "LLM:a", sourceHandle: "start", target: "Message:b", targetHandle: "end" };
    expect(connectionProblem(inside, connection)).toContain("border");
  });
});

describe("branches of a Switch", () => {
  const row = (to: string): Record<string, unknown> => ({ logical_operator: "and", items: [], to: [to] });
  const document = drawing("begin>Switch:s, Switch:s/Case 1>Message:a, Switch:s/Case 2>Message:b, Switch:s/Case 3>Message:c, Switch:s/end_cpn_ids>Message:d", {
    "Switch:s": { conditions: [row("Message:a"), row("Message:b"), row("Message:c")], end_cpn_ids: ["Message:d"] },
  });
  const rows = formOf(document, "Switch:s").conditions as Json[];
  const edges = (changed: Document): string[] => edgesText(changed).filter((text) => text.startsWith("Switch"));

  it("are noted in its form when an edge is drawn or removed", () => {
    const more = connect(document, { source: "Switch:s", sourceHandle: "Case 2", target: "Message:d", targetHandle: "end" });
    expect(getIn(nodesOf(more).get("Switch:s")?.form, ["conditions", 1, "to"])).toEqual(["Message:b", "Message:d"]);

    const less = deleteNodes(more, ["Message:d"]);
    expect(getIn(nodesOf(less).get("Switch:s")?.form, ["conditions", 1, "to"])).toEqual(["Message:b"]);
    expect(formOf(less, "Switch:s").end_cpn_ids).toEqual([]);
  });

  it.each<[string, Json[], string[]]>([
    ["removed", [rows[0] ?? null, rows[2] ?? null], ["Switch:s/Case 1>Message:a", "Switch:s/Case 2>Message:c"]],
    ["moved", [rows[2] ?? null, rows[0] ?? null, rows[1] ?? null], ["Switch:s/Case 1>Message:c", "Switch:s/Case 2>Message:a", "Switch:s/Case 3>Message:b"]],
    ["added in front", [{ logical_operator: "and", items: [], to: [] }, ...rows], ["Switch:s/Case 2>Message:a", "Switch:s/Case 3>Message:b", "Switch:s/Case 4>Message:c"]],
  ])("take their edges along when one is %s", (_, conditions, expected) => {
    const changed = changeForm(document, "Switch:s", { path: ["conditions"], value: conditions });
    expect(edges(changed)).toEqual([...expected, "Switch:s/end_cpn_ids>Message:d"]);
  });

  it("lead where the form says", () => {
    const changed = changeForm(document, "Switch:s", { path: ["conditions", 0, "to"], value: ["Message:c", "Message:d"] });
    expect(edges(changed)).toEqual(["Switch:s/Case 1>Message:c", "Switch:s/Case 1>Message:d", "Switch:s/Case 2>Message:b", "Switch:s/Case 3>Message:c", "Switch:s/end_cpn_ids>Message:d"]);
  });

  it("of a Categorize get handles, and lose their edges with them", () => {
    const categorize = changeForm(drawing("begin>Categorize:c, Message:a>"), "Categorize:c", { path: ["items"], value: [{ name: "A" }, { name: "B" }] });
    const [first, second] = handlesOf(categorize, nodesOf(categorize).get("Categorize:c") as never).filter((handle) => handle.type === "source");
    const connected = connect(categorize, { source: "Categorize:c", sourceHandle: second?.id ?? "", target: "Message:a", targetHandle: "end" });

    const less = changeForm(connected, "Categorize:c", { path: ["items", 1], value: undefined });

    expect(first?.label).toBe("A");
    expect([connected, less].map((each) => edgesOf(each).length)).toEqual([2, 1]);
  });
});

// -- T153 ----------------------------------------------------------------------------------------------------------------
describe("containers", () => {
  const chain = "begin>LLM:a, LLM:a>LLM:b, LLM:b>LLM:c, LLM:c>Message:d";

  it.each(["Iteration", "Loop"] as const)("%s groups nodes with a start and rerouted edges, and ungrouping gives the same drawing", (kind) => {
    const document = drawing(chain);
    const { document: grouped, id } = groupNodes(document, ["LLM:a", "LLM:b", "LLM:c"], kind, {});
    const start = [...nodesOf(grouped).values()].find((node) => node.label === `${kind}Item`);

    expect(edgesText(grouped)).toEqual([`${id}>Message:d`, `${start?.id}>LLM:a`, `begin>${id}`, "LLM:a>LLM:b", "LLM:b>LLM:c"].sort());
    expect(["LLM:a", "LLM:b", "LLM:c", start?.id ?? ""].map((each) => nodesOf(grouped).get(each)?.parent)).toEqual([id, id, id, id]);
    checkConsistency(grouped);
    const layout = drawnLayout(graphOf(grouped));
    for (const each of ["LLM:a", "LLM:b", "LLM:c", start?.id ?? ""]) {
      const [box, outer] = [layout.get(each), layout.get(id)];
      expect(box && outer && box.x >= 0 && box.y >= 0 && box.x + box.w <= outer.w && box.y + box.h <= outer.h).toBe(true);
    }

    const freed = ungroup(grouped, id);
    expect(edgesText(freed)).toEqual(edgesText(document));
    expect(objectOf(freed.graph).nodes).toEqual(objectOf(document.graph).nodes);
  });

  it.each([
    ["nodes that different nodes lead to", "begin>LLM:a, LLM:a>LLM:x, begin>LLM:b, LLM:b>LLM:y", ["LLM:x", "LLM:y"], "Different nodes"],
    ["a branch that leads out", "begin>Switch:s, Switch:s/end_cpn_ids>Message:m", ["Switch:s"], "branch"],
    ["a way out and back", "begin>LLM:a, LLM:a>LLM:b, LLM:b>LLM:c", ["LLM:a", "LLM:c"], "leads back"],
    ["Begin", chain, ["begin"], "Begin"],
    ["nothing", chain, [], "Select"],
    ["a sub-agent alone", "begin>Agent:a, Agent:a/agentBottom>Agent:s", ["Agent:s"], "Agent"],
  ])("are refused for %s", (_, edges, ids, words) => {
    expect(refusal(() => groupNodes(drawing(edges), ids, "Loop", {}))).toContain(words);
  });

  it("take in one node, and give it out again", () => {
    const { document, id } = groupNodes(drawing(chain), ["LLM:b"], "Iteration", {});
    const start = [...nodesOf(document).values()].find((node) => node.label === "IterationItem")?.id ?? "";

    const after = changeParent(document, "LLM:c", id, { x: 500, y: 100 });
    const before = changeParent(after, "LLM:a", id, { x: 400, y: 100 });

    expect(edgesText(after)).toEqual([`${id}>Message:d`, `${start}>LLM:b`, "LLM:a>" + id, "LLM:b>LLM:c", "begin>LLM:a"].sort());
    expect(edgesText(before)).toEqual([`${id}>Message:d`, `${start}>LLM:a`, `begin>${id}`, "LLM:a>LLM:b", "LLM:b>LLM:c"].sort());
    expect(refusal(() => changeParent(before, "LLM:b", null, { x: 0, y: 0 }))).toContain("between");
    const out = changeParent(changeParent(before, "LLM:a", null, { x: 0, y: 0 }), "LLM:c", null, { x: 0, y: 0 });
    expect(edgesText(out)).toEqual(edgesText(document));
  });
});

describe("nodes that are dragged together", () => {
  const document = drawing("begin>LLM:a, LLM:a>LLM:b, LLM:b>LLM:c, LLM:c>Message:d, Agent:x/agentBottom>Agent:sub, Message:d>Agent:x");
  const { document: grouped, id } = groupNodes(document, ["LLM:b"], "Iteration", {});
  const start = [...nodesOf(grouped).values()].find((node) => node.label === "IterationItem")?.id ?? "";
  const moved = (ids: readonly string[], parent: string | null) => ids.map((each, place) => ({ id: each, parent, place: { x: 500 + 300 * place, y: 100 } }));

  it.each([[["LLM:c", "Message:d"]], [["Message:d", "LLM:c"]]])("into a container, %j, stay connected, and out of it the drawing is as before", (ids) => {
    const inside = changeParents(grouped, moved(ids, id));
    const outside = changeParents(inside, moved(ids, null));

    expect(edgesText(inside)).toEqual([`${id}>Agent:x`, `${start}>LLM:b`, `LLM:a>${id}`, "LLM:b>LLM:c", "LLM:c>Message:d", "begin>LLM:a", "Agent:x/agentBottom>Agent:sub"].sort());
    expect(ids.map((each) => nodesOf(inside).get(each)?.parent)).toEqual([id, id]);
    expect(edgesText(outside)).toEqual(edgesText(grouped));
    expect(nodesOf(outside).get(ids[1] ?? "")?.raw.position).toEqual({ x: 800, y: 100 });
  });

  it("take a sub-agent with its Agent, and leave what only moved", () => {
    const inside = changeParents(grouped, [...moved(["Message:d", "Agent:x", "Agent:sub"], id), { id: "begin", parent: null, place: { x: 1, y: 2 } }]);

    expect(["Agent:x", "Agent:sub", "begin"].map((each) => nodesOf(inside).get(each)?.parent ?? null)).toEqual([id, id, null]);
    expect(nodesOf(inside).get("begin")?.raw.position).toEqual({ x: 1, y: 2 });
  });

  it("are refused with a sentence where they would lie in different containers", () => {
    expect(refusal(() => changeParents(grouped, [...moved(["LLM:c"], id), ...moved(["LLM:a"], null)]))).toContain("different containers");
  });
});

describe("nodes", () => {
  it("are added with their defaults, an id and a name of their own", () => {
    const one = addNode(drawing("begin>LLM:a"), MESSAGE, { x: 1.4, y: 2, parent: null });
    const two = addNode(one.document, MESSAGE, { x: 0, y: 0, parent: null });

    expect(formOf(two.document, two.id)).toEqual({ content: [""] });
    expect(two.id).toMatch(/^Message:[A-Z][a-z]+[A-Z][a-z]+[A-Z][a-z]+$/);
    expect([one.id, two.id].map((id) => nodesOf(two.document).get(id)?.name)).toEqual(["Message", "Message 2"]);
    expect(refusal(() => addNode(one.document, component("Begin"), { x: 0, y: 0, parent: null }))).toContain("one Begin");
  });

  it.each([ITERATION, LOOP])("$name gets its start node", (container) => {
    const { document, id } = addNode(drawing("begin>LLM:a"), container, { x: 0, y: 0, parent: null });
    expect([...nodesOf(document).values()].filter((node) => node.parent === id).map((node) => node.label)).toEqual([`${container.name}Item`]);
  });

  it("inserted on an edge lie between both ends", () => {
    const { document, id } = addNode(drawing("begin>LLM:a"), SWITCH, { x: 0, y: 0, parent: null });
    expect(edgesText(insertOnEdge(document, id, "begin-LLM:a"))).toEqual([`${id}/end_cpn_ids>LLM:a`, `begin>${id}`]);
  });

  it("that are Agents take tools, shown by one node, and lose them with it", () => {
    const { document, id } = addNode(drawing("begin>LLM:a"), AGENT, { x: 0, y: 0, parent: null });
    const two = addTool(addTool(document, id, { name: "TavilySearch", defaults: { top_n: 3 } }), id, { name: "ArXiv", defaults: {} });
    const tool = [...nodesOf(two).values()].filter((node) => node.label === "Tool");

    expect((formOf(two, id).tools as { component_name: string }[]).map((each) => each.component_name)).toEqual(["TavilySearch", "ArXiv"]);
    expect(tool.length).toBe(1);
    expect(formOf(deleteNodes(two, [tool[0]?.id ?? ""]), id).tools).toEqual([]);
    expect(nodesOf(changeForm(two, id, { path: ["tools"], value: [] })).has(tool[0]?.id ?? "")).toBe(false);
    expect(nodesOf(deleteNodes(two, [id])).size).toBe(2);
  });

  it("are pasted with new ids, and refer to the copies", () => {
    const document = drawing("begin>LLM:a, LLM:a>Message:b", { "Message:b": { content: ["{LLM:a@content} {begin@x} {sys.query}"] } });
    const { document: pasted, ids } = pasteNodes(document, copyNodes(document, ["begin", "LLM:a", "Message:b"]));

    expect(ids.length).toBe(2);
    expect(formOf(pasted, ids[1] ?? "").content).toEqual([`{${ids[0]}@content} {begin@x} {sys.query}`]);
    expect(edgesText(pasted)).toContain(`${ids[0]}>${ids[1]}`);
    expect(refusal(() => pasteNodes(document, "something else"))).toContain("no nodes");
  });

  it("stay where they are if they are Begin or the start of a container", () => {
    expect(refusal(() => deleteNodes(drawing("begin>LLM:a"), ["begin"]))).toContain("Begin");
  });
});

describe("documents of RAGFlow", async () => {
  const documents = await recordedDocuments();

  it.each(documents)("%s is tidied without overlaps, twice the same (T157)", async (_, document) => {
    const once = await tidy(document);
    const graph = graphOf(once);
    const layout = drawnLayout(graph);
    for (const node of graph.nodes) {
      const box = layout.get(node.id);
      if (!box) continue;
      for (const other of graph.nodes) {
        const second = layout.get(other.id);
        if (!second || other.id === node.id || other.parent !== node.parent) continue;
        const apart = box.x + box.w <= second.x || second.x + second.w <= box.x || box.y + box.h <= second.y || second.y + second.h <= box.y;
        expect([node.id, other.id, apart]).toEqual([node.id, other.id, true]);
      }
      const outer = node.parent === null ? undefined : layout.get(node.parent);
      if (outer) expect(box.x >= 0 && box.y >= 0 && box.x + box.w <= outer.w && box.y + box.h <= outer.h).toBe(true);
    }
    expect(isEqual(await tidy(once), once)).toBe(true);
  });

  it.each(documents)("%s differs in one place after a node was moved", (_, document) => {
    const [id = ""] = nodesOf(document).keys();
    const patch = patchBetween(document, moveNodes(document, [id], 10, 10));
    expect(patch.map((operation) => operation.path)).toEqual(["/graph/nodes/0/position/x", "/graph/nodes/0/position/y"]);
  });
});

// -- T160 ----------------------------------------------------------------------------------------------------------------
describe("two changes of one draft", () => {
  const base = documentOf(TEXT);

  it("are merged where they concern different nodes", () => {
    const mine = setVariable(renameNode(base, "LLM:One", "Mine"), null, { name: "b", type: "string", value: "", description: "" });
    const theirs = deleteNodes(addNode(base, MESSAGE, { x: 0, y: 0, parent: null }).document, ["Message:Two"]);

    const merged = merge(base, mine, theirs);

    expect(merged && [nodesOf(merged).get("LLM:One")?.name, nodesOf(merged).has("Message:Two"), nodesOf(merged).size, "b" in objectOf(merged.variables)]).toEqual(["Mine", false, 3, true]);
  });

  it.each<[string, readonly string[], Document, Document]>([
    ["the same node", ["Mine"], renameNode(base, "LLM:One", "Mine"), renameNode(base, "LLM:One", "Theirs")],
    ["a node that the other removed", ["Mine"], renameNode(base, "Message:Two", "Mine"), deleteNodes(base, ["Message:Two"])],
    ["an edge to a node that the other removed", [], connect(base, { source: "begin", sourceHandle: "start", target: "Message:Two", targetHandle: "end" }), deleteNodes(base, ["Message:Two"])],
    ["the same variable", ["variables", "globals"], removeVariable(base, "env1"), setVariable(base, "env1", { name: "env1", type: "number", value: 5, description: "" })],
  ])("are not merged for %s", (_, names, mine, theirs) => {
    expect(merge(base, mine, theirs)).toBeNull();
    expect(new Set(changedByBoth(base, mine, theirs))).toEqual(new Set(names));
  });

  it("are merged with a new container before the nodes that were put into it", () => {
    const mine = groupNodes(base, ["LLM:One"], "Iteration", {}).document;
    const merged = merge(base, mine, renameNode(base, "Message:Two", "Theirs"));
    const ids = merged && [...nodesOf(merged).values()].map(({ id, parent }) => [id, parent] as const);

    expect(ids?.every(([, parent], index) => parent === null || ids.findIndex(([id]) => id === parent) < index)).toBe(true);
  });

  it("are found by node; places do not count", () => {
    const changed = connect(moveNodes(renameNode(base, "LLM:One", "New"), ["begin"], 5, 5), { source: "begin", sourceHandle: "start", target: "Message:Two", targetHandle: "end" });

    expect([...changedNodes(base, changed)].sort()).toEqual(["LLM:One", "begin"]);
  });
});
