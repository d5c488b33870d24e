/** Documents for tests of the editor. */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

import type { ComponentDescription } from "../src/catalogue/catalogue";
import { isDrawn, withNodes, withPlaces, graphOf, type Document } from "../src/editor/document/document";
import { isObject, objectOf, readJson } from "../src/editor/document/json";
import { computedLayout } from "../src/graph/layout";

const RECORDINGS = join(import.meta.dirname, "../../tests/recordings/ragflow");

export function component(name: string, defaults: Readonly<Record<string, unknown>> = {}, kind: ComponentDescription["kind"] = "ordinary"): ComponentDescription {
  return { name, title: name, group: "flow", description: "", kind, nodeType: "", effect: "pure", isTool: false, params: {}, defaults, outputs: [], handles: { in: ["end"], out: ["start"] }, secrets: [] };
}

export const COMPONENTS = [
  component("Message", { content: [""] }),
  component("LLM", { llm_id: "", prompts: [{ role: "user", content: "{sys.query}" }] }),
  component("Switch", { conditions: [], end_cpn_ids: [] }),
  component("Categorize", { items: [] }),
  component("Agent", { tools: [], mcp: [] }),
  component("Iteration", { items_ref: "", outputs: {} }, "container"),
  component("Loop", { loop_variables: [] }, "container"),
] as const;

/** A document as RAGFlow writes it, with what must stay as it is: unknown keys, numbers, the order of keys. */
export const TEXT = `{"zeta":{"b":1.0,"a":2},"graph":{"nodes":[
{"id":"begin","type":"beginNode","position":{"x":50.0,"y":200},"data":{"label":"Begin","name":"begin","form":{"mode":"conversational","weight":1.0,"big":1152921504606846977}},"extra":[1.0,2]},
{"id":"LLM:One","type":"ragNode","position":{"x":300,"y":200},"measured":{"width":200,"height":76},"data":{"label":"LLM","name":"One","form":{"llm_id":"echo@Easel","temperature":0.10,"prompts":[{"role":"user","content":"{sys.query}"}]}}},
{"id":"Message:Two","type":"messageNode","position":{"x":600,"y":200},"data":{"label":"Message","name":"Two","form":{"content":["{LLM:One@content}"]}}}
],"edges":[
{"id":"a","source":"begin","sourceHandle":"start","target":"LLM:One","targetHandle":"end","data":{"isHovered":false}},
{"id":"b","source":"LLM:One","sourceHandle":"start","target":"Message:Two","targetHandle":"end"}]},
"variables":{"env1":{"name":"env1","type":"number","value":1e2,"description":""}},"globals":{"sys.query":"","env.env1":1e2},"components":{"begin":{"obj":{"component_name":"Begin","params":{}},"downstream":["LLM:One"]}},"alpha":null}`;

export function documentOf(text: string): Document {
  const value = readJson(text);
  if (!isObject(value)) throw new Error("no object");
  return value;
}

/** Return every recorded document, drawn. */
export async function recordedDocuments(): Promise<[name: string, document: Document][]> {
  const files = readdirSync(RECORDINGS, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".json") && statSync(join(RECORDINGS, name)).isFile());
  const documents = files.map((name): [string, Document] => {
    const written = documentOf(readFileSync(join(RECORDINGS, name), "utf8"));
    return [name, isObject(written.dsl) ? written.dsl : written];
  });
  return Promise.all(documents.map(async ([name, document]): Promise<[string, Document]> => [name, await drawn(document)]));
}

export async function drawn(document: Document): Promise<Document> {
  if (isDrawn(document)) return document;
  const complete = withNodes(document);
  const graph = graphOf(complete);
  return withPlaces(complete, graph, await computedLayout(graph));
}

/** A generator of numbers between 0 and 1 that gives the same ones for a seed. */
export function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) % 4294967296;
    return state / 4294967296;
  };
}

/** Build a drawing: "begin>LLM:a, LLM:a>Message:b"; ids name their component. */
export function drawing(edges: string, forms: Readonly<Record<string, Record<string, unknown>>> = {}): Document {
  const pairs = edges.split(",").map((edge) => edge.trim().split(">") as [string, string]);
  const ids = [...new Set(pairs.flatMap(([from, to]) => [from.split("/")[0] ?? "", to]))].filter(Boolean);
  const handles = (from: string): [string, string] => [from.split("/")[0] ?? "", from.split("/")[1] ?? "start"];
  return documentOf(JSON.stringify({
    graph: {
      nodes: ids.map((id, index) => ({ id, position: { x: 300 * index, y: 100 }, data: { label: id === "begin" ? "Begin" : id.split(":")[0], name: id, form: forms[id] ?? {} } })),
      edges: pairs.filter(([, to]) => to).map(([from, to]) => {
        const [source, sourceHandle] = handles(from);
        return { id: `${from}-${to}`, source, sourceHandle, target: to, targetHandle: sourceHandle === "agentBottom" ? "agentTop" : "end" };
      }),
    },
  }));
}

export function edgesText(document: Document): string[] {
  return (objectOf(document.graph).edges as { source: string; sourceHandle: string; target: string }[])
    .map(({ source, sourceHandle, target }) => `${source}${sourceHandle === "start" ? "" : `/${sourceHandle}`}>${target}`)
    .sort();
}
