/** What a node can refer to at its place: the references that the API's validation accepts there. */
import { isMembers } from "../catalogue/parse-catalogue";
import type { Catalogue, Output } from "../catalogue/catalogue";
import type { ReferenceChoice } from "./contract";
import { membersIn, runNodes, runningNode, type RunNode } from "./document-nodes";
import { runOrder } from "./run-order";

type Members = Readonly<Record<string, unknown>>;

/** The globals that every document has, and those that only a run sets. */
const SYSTEM: readonly Output[] = [
  { name: "sys.query", type: "string" },
  { name: "sys.user_id", type: "string" },
  { name: "sys.conversation_turns", type: "number" },
  { name: "sys.files", type: "Array<string>" },
  { name: "sys.history", type: "Array<string>" },
  { name: "sys.date", type: "string" },
  { name: "sys.chat_template_kwargs", type: "object" },
];
const ALIASES: readonly Output[] = [
  { name: "item", type: "unknown" },
  { name: "index", type: "integer" },
  { name: "result", type: "unknown" },
];
/** What a webhook's call gives to Begin. */
const WEBHOOK = ["query", "headers", "body"].map((name): Output => ({ name, type: "object" }));
const GLOBAL = /^(sys|env)\.[A-Za-z0-9_.]+$/;
const OUTPUT = /^[A-Za-z0-9_.-]+$/;
const NODE = /^[A-Za-z0-9_:]+$/;
const BESIDE = 1_000_000; // the rank of nodes from which no path leads here

/**
 * Return what a node can refer to: outputs of nodes before it, the nearest first, then the containers around it,
 * variables, and nodes on other branches. Names that RAGFlow's syntax cannot express are left out.
 */
export function referencesAt(document: Members, nodeId: string, catalogue: Catalogue): ReferenceChoice[] {
  const nodes = runNodes(document);
  const reader = runningNode(document, nodeId);
  const order = runOrder(nodes);
  const around = containersAround(nodes, reader);
  const outputs = outputsBy(catalogue);
  const readable = [...nodes.values()]
    .filter((node) => NODE.test(node.id) && order.canBeRead(node.id, reader))
    .map((node) => ({ node, rank: rankOf(node, reader, around, order.distance(node.id, reader)) }))
    .sort((a, b) => a.rank - b.rank);
  const ofNodes = (isBefore: boolean): ReferenceChoice[] =>
    readable
      .filter(({ rank }) => isBefore === rank < BESIDE)
      .flatMap(({ node }) => outputs(node).map((output) => ({ reference: `${node.id}@${output.name}`, label: output.name, group: node.name, type: output.type })));
  return [...aliases(around), ...ofNodes(true), ...globals(document), ...ofNodes(false)];
}

function rankOf(node: RunNode, reader: string, around: readonly RunNode[], distance: number | null): number {
  if (node.id === reader) return BESIDE + 1;
  if (node.parent === reader) return 0; // an Iteration collects outputs of its body
  if (node.parent !== null && around[0]?.id === node.parent) return 0;
  return distance ?? BESIDE;
}

/** The containers around a node, the innermost first. */
function containersAround(nodes: ReadonlyMap<string, RunNode>, nodeId: string): RunNode[] {
  const around: RunNode[] = [];
  let parent = nodes.get(nodeId)?.parent ?? null;
  while (parent !== null && around.length < 100) {
    const container = nodes.get(parent);
    if (!container) break;
    around.push(container);
    parent = container.parent;
  }
  return around;
}

function aliases(around: readonly RunNode[]): ReferenceChoice[] {
  const iteration = around.find((each) => each.component === "Iteration");
  return iteration ? ALIASES.map(({ name, type }) => ({ reference: name, label: name, group: iteration.name, type })) : [];
}

function globals(document: Members): ReferenceChoice[] {
  const stored = isMembers(document.globals) ? document.globals : {};
  const variables = isMembers(document.variables) ? document.variables : {};
  const types = new Map(SYSTEM.map(({ name, type }) => [name, type]));
  for (const [name, value] of Object.entries(stored)) if (!types.has(name)) types.set(name, typeOfValue(value));
  for (const [name, variable] of Object.entries(variables))
    types.set(`env.${name}`, (isMembers(variable) && textOf(variable.type)) || types.get(`env.${name}`) || "unknown");
  return [...types]
    .filter(([name]) => GLOBAL.test(name))
    .map(([name, type]) => ({ reference: name, label: name, group: name.startsWith("sys.") ? "sys" : "env", type }));
}

/** The outputs that a node may have: those of its component, those that its form declares and those it is named after. */
function outputsBy(catalogue: Catalogue): (node: RunNode) => Output[] {
  const described = new Map([...catalogue.tools, ...catalogue.components].map((each) => [each.name.toLowerCase(), each]));
  return ({ component, form }) => {
    const found = new Map<string, string>();
    const add = (name: string, type: string): unknown => (OUTPUT.test(name) && !name.includes(".") ? found.set(name, type) : null);
    for (const { name, type } of described.get(component.toLowerCase())?.outputs ?? []) add(name, type);
    for (const [name, output] of Object.entries(isMembers(form.outputs) ? form.outputs : {}))
      add(name, (isMembers(output) && textOf(output.type)) || found.get(name) || "unknown");
    for (const { name, type } of authored(component, form)) add(name, type);
    if (form.exception_default_value) add("result", found.get("result") ?? "unknown");
    add("_ERROR", "string"); // of a node that has failed and was continued
    return [...found].map(([name, type]) => ({ name, type }));
  };
}

/** Outputs that are named after fields of a form, variables of a loop, or groups. */
function authored(component: string, form: Members): Output[] {
  switch (component) {
    case "Begin":
    case "UserFillUp":
      if (component === "Begin" && form.mode === "Webhook") return WEBHOOK;
      return formFields(form.inputs).map(([name, field]) => ({ name, type: textOf(field.type) || "string" }));
    case "Loop":
      return membersIn(form.loop_variables).map((row) => ({ name: textOf(row.variable), type: textOf(row.type) || "unknown" }));
    case "VariableAggregator":
      return membersIn(form.groups).map((row) => ({ name: textOf(row.group_name), type: textOf(row.type) || "unknown" }));
    default:
      return [];
  }
}

function formFields(inputs: unknown): [string, Members][] {
  if (isMembers(inputs)) return Object.entries(inputs).map(([name, field]) => [name, isMembers(field) ? field : {}]);
  return membersIn(inputs).map((field) => [textOf(field.key) || textOf(field.name), field]);
}

function typeOfValue(value: unknown): string {
  if (Array.isArray(value)) return "Array<unknown>";
  return value === null ? "unknown" : typeof value;
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}
