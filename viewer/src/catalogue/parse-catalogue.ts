/** The reply of `GET /api/v1/components` as the types of catalogue.ts; what has another shape is left out. */
import type { Catalogue, ComponentDescription, Handles, Output, Schema } from "./catalogue";

type Members = Readonly<Record<string, unknown>>;

const KINDS = ["ordinary", "container", "start", "note"] as const;
const TOOL_HANDLES: Handles = { in: ["end"], out: [] };

/** Return the catalogue. Raises TypeError if the reply is none. */
export function parseCatalogue(reply: unknown): Catalogue {
  if (!isMembers(reply) || !Array.isArray(reply.components)) throw new TypeError("The reply of the API is not a catalogue of components.");
  return {
    build: textOf(reply.build),
    groups: membersOf(reply.groups).map((each) => ({ id: textOf(each.id), title: textOf(each.title) })),
    components: membersOf(reply.components).flatMap((each) => parseComponent(each) ?? []),
    tools: membersOf(reply.tools).flatMap((each) => parseComponent({ node_type: "toolNode", tool: true, handles: TOOL_HANDLES, ...each }) ?? []),
  };
}

function parseComponent(each: Members): ComponentDescription | null {
  const { name, params } = each;
  if (typeof name !== "string" || !name || !isMembers(params)) return null;
  return {
    name,
    title: textOf(each.title) || name,
    group: textOf(each.group) || "other",
    description: textOf(each.description),
    kind: KINDS.find((kind) => kind === each.kind) ?? "ordinary",
    nodeType: textOf(each.node_type) || "ragNode",
    effect: textOf(each.effect),
    isTool: each.tool === true,
    params,
    defaults: isMembers(each.defaults) ? each.defaults : {},
    outputs: membersOf(each.outputs).flatMap(parseOutput),
    handles: parseHandles(each.handles),
    secrets: textsOf(each.secrets),
  };
}

function parseOutput(each: Members): Output[] {
  return typeof each.name === "string" && each.name ? [{ name: each.name, type: textOf(each.type) || "unknown" }] : [];
}

function parseHandles(value: unknown): Handles {
  const members = isMembers(value) ? value : {};
  const handles: Handles = { in: textsOf(members.in), out: textsOf(members.out) };
  const { per } = members;
  if (!isMembers(per) || typeof per.field !== "string" || typeof per.handle !== "string") return handles;
  return { ...handles, per: { field: per.field, handle: per.handle, ...(typeof per.else === "string" ? { else: per.else } : {}) } };
}

/** Whether a value is a JSON object. */
export function isMembers(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function membersOf(value: unknown): Members[] {
  return Array.isArray(value) ? value.filter(isMembers) : [];
}

function textsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === "string") : [];
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}
