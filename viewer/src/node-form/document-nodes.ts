/** The nodes of a document as runs see them: their forms, what they lead to, and the containers around them. */
import { isMembers } from "../catalogue/parse-catalogue";

type Members = Readonly<Record<string, unknown>>;

export interface RunNode {
  id: string;
  name: string;
  component: string;
  form: Members;
  /** The container around it. */
  parent: string | null;
  /** The nodes that a run can go on with after it. */
  next: readonly string[];
}

interface Edge {
  source: string;
  target: string;
  sourceHandle: string;
  targetHandle: string;
}

const DRAWN_ONLY = new Set(["Note", "Tool", "Placeholder"]);
const ROUTERS = new Set(["Switch", "Categorize"]);

/** Return the nodes of a document by id, in its order: of its drawing, or of its entries if it has none. */
export function runNodes(document: Members): ReadonlyMap<string, RunNode> {
  const graph = isMembers(document.graph) ? document.graph : {};
  const drawn = membersIn(graph.nodes);
  return drawn.length > 0 ? drawnNodes(drawn, edgesOf(graph.edges)) : writtenNodes(document.components);
}

/** Return the node for which a drawn node runs: a sub-agent or a tool runs for the agent above it. */
export function runningNode(document: Members, nodeId: string): string {
  const edges = isMembers(document.graph) ? edgesOf(document.graph.edges) : [];
  const seen = new Set<string>();
  for (let node = nodeId; !seen.has(node); ) {
    seen.add(node);
    const above = edges.find((each) => each.target === node && isBelow(each));
    if (!above) return node;
    node = above.source;
  }
  return nodeId;
}

function drawnNodes(drawn: readonly Members[], edges: readonly Edge[]): ReadonlyMap<string, RunNode> {
  const labels = new Map(drawn.map((each) => [textOf(each.id), textOf(dataOf(each).label)]));
  const below = new Set(edges.filter((each) => each.targetHandle === "agentTop").map((each) => each.target));
  const nodes = new Map<string, RunNode>();
  for (const each of drawn) {
    const [id, data] = [textOf(each.id), dataOf(each)];
    const component = textOf(data.label);
    if (!id || DRAWN_ONLY.has(component) || below.has(id)) continue;
    const leaving = edges.filter((edge) => edge.source === id);
    const isFollowed = (edge: Edge): boolean =>
      edge.targetHandle !== "agentTop" &&
      !DRAWN_ONLY.has(labels.get(edge.target) ?? "") &&
      !(component === "Agent" && (edge.sourceHandle === "agentException" || edge.target.startsWith("Tool")));
    const form = isMembers(data.form) ? data.form : {};
    const downstream = leaving.filter(isFollowed).map((edge) => edge.target);
    const exits = component === "Agent" ? leaving.filter((edge) => edge.sourceHandle === "agentException").map((edge) => edge.target) : null;
    nodes.set(id, {
      id,
      component,
      form,
      name: textOf(data.name) || id,
      parent: textOf(each.parentId) || null,
      next: nextOf(component, downstream, branchesOf(form, leaving), exits ?? textsIn(form.exception_goto), form),
    });
  }
  return nodes;
}

function writtenNodes(components: unknown): ReadonlyMap<string, RunNode> {
  const nodes = new Map<string, RunNode>();
  for (const [id, entry] of Object.entries(isMembers(components) ? components : {})) {
    if (!isMembers(entry)) continue;
    const object = isMembers(entry.obj) ? entry.obj : entry;
    const form = isMembers(object.params) ? object.params : {};
    const component = textOf(object.component_name) || textOf(object.name);
    if (DRAWN_ONLY.has(component)) continue;
    nodes.set(id, {
      id,
      component,
      form,
      name: id,
      parent: textOf(entry.parent_id) || null,
      next: nextOf(component, textsIn(entry.downstream), branchesOf(form, []), textsIn(form.exception_goto), form),
    });
  }
  return nodes;
}

function nextOf(component: string, downstream: readonly string[], branches: readonly string[], exits: readonly string[], form: Members): string[] {
  const followed = ROUTERS.has(component) ? downstream.filter((each) => branches.includes(each)) : downstream;
  return [...new Set([...followed, ...branches, ...(form.exception_method ? exits : [])])];
}

/** The targets of the branches of a Switch or Categorize: edges of a category count before the targets in its row. */
function branchesOf(form: Members, leaving: readonly Edge[]): string[] {
  const rows = membersIn(form.items).flatMap((row) => {
    const drawn = leaving.filter((edge) => edge.sourceHandle !== "" && edge.sourceHandle === row.uuid).map((edge) => edge.target);
    return drawn.length > 0 ? drawn : textsIn(row.to);
  });
  const described = isMembers(form.category_description) ? Object.values(form.category_description).filter(isMembers) : [];
  return [
    ...membersIn(form.conditions).flatMap((group) => textsIn(group.to)),
    ...textsIn(form.end_cpn_ids),
    ...(rows.length > 0 ? rows : described.flatMap((each) => textsIn(each.to))),
  ];
}

function isBelow(edge: Edge): boolean {
  return edge.targetHandle === "agentTop" || edge.sourceHandle === "tool" || edge.sourceHandle === "agentBottom";
}

function edgesOf(value: unknown): Edge[] {
  return membersIn(value).map((each) => ({
    source: textOf(each.source),
    target: textOf(each.target),
    sourceHandle: textOf(each.sourceHandle),
    targetHandle: textOf(each.targetHandle),
  }));
}

function dataOf(node: Members): Members {
  return isMembers(node.data) ? node.data : {};
}

export function membersIn(value: unknown): Members[] {
  return Array.isArray(value) ? value.filter(isMembers) : [];
}

export function textsIn(value: unknown): string[] {
  if (typeof value === "string") return value ? [value] : [];
  return Array.isArray(value) ? value.filter((each): each is string => typeof each === "string" && each !== "") : [];
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}
