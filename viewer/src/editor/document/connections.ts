/** Which handles a node has, and what may be connected with what. */
import { visibleName } from "../../ui/visible-text";
import { branchesOf, edgesOf, nodesOf, STARTS, type Document, type DrawnNode } from "./document";

export interface NodeHandle {
  id: string;
  type: "source" | "target";
  side: "left" | "right" | "top" | "bottom";
  /** What an edge from here means, for people. */
  label: string;
}

export interface Connection {
  source: string;
  sourceHandle: string;
  target: string;
  targetHandle: string;
}

const OUT: NodeHandle = { id: "start", type: "source", side: "right", label: "Next" };
const IN: NodeHandle = { id: "end", type: "target", side: "left", label: "In" };

/** Return the handles of a node in the order in which they are shown. */
export function handlesOf(document: Document, node: DrawnNode): readonly NodeHandle[] {
  switch (node.label) {
    case "Note":
      return [];
    case "Tool":
      return [{ ...IN, side: "top", label: "Agent" }];
    case "Begin":
    case "IterationItem":
    case "LoopItem":
      return [OUT];
    case "ExitLoop":
      return [IN];
    case "Switch":
    case "Categorize":
      return [IN, ...branchesOf(node.label, node.form).map(({ key, label }): NodeHandle => ({ id: key, type: "source", side: "right", label }))];
    case "Agent":
      return agentHandles(document, node);
    default:
      return [IN, OUT];
  }
}

function agentHandles(document: Document, node: DrawnNode): readonly NodeHandle[] {
  const edges = edgesOf(document);
  const below: NodeHandle[] = [
    { id: "agentBottom", type: "source", side: "bottom", label: "Sub-agent" },
    { id: "tool", type: "source", side: "bottom", label: "Tools" },
  ];
  const top: NodeHandle = { id: "agentTop", type: "target", side: "top", label: "Agent above" };
  if (isSubAgent(document, node.id)) return [top, ...below];
  const hasException = node.form.exception_method === "goto" || edges.some((edge) => edge.source === node.id && edge.sourceHandle === "agentException");
  const exception: NodeHandle[] = hasException ? [{ id: "agentException", type: "source", side: "right", label: "If it fails" }] : [];
  return [IN, top, OUT, ...exception, ...below];
}

export function isSubAgent(document: Document, id: string): boolean {
  return edgesOf(document).some((edge) => edge.target === id && edge.targetHandle === "agentTop");
}

/** Return the handle at which an edge from a handle ends. */
export function targetHandleFor(sourceHandle: string): string {
  return sourceHandle === "agentBottom" ? "agentTop" : "end";
}

/** Return why two handles cannot be connected, in a sentence; null if they can. */
export function connectionProblem(document: Document, { source, sourceHandle, target, targetHandle }: Connection): string | null {
  const nodes = nodesOf(document);
  const [from, to] = [nodes.get(source), nodes.get(target)];
  if (!from || !to) return "One of the nodes does not exist any more.";
  const [fromName, toName] = [quoted(from), quoted(to)];
  if (source === target) return `${fromName} cannot lead to itself.`;
  if (to.label === "Begin") return "Nothing leads into Begin: a run starts there.";
  if (to.label in STARTS) return `Nothing leads into the start of a container: its container starts it.`;
  if (from.label === "Note" || to.label === "Note") return "A note is no part of a run, so it has no edges.";
  if (!handlesOf(document, from).some((each) => each.id === sourceHandle && each.type === "source")) return `${fromName} has no such way out.`;
  if (from.parent !== to.parent) return borderProblem(document, from, to);
  const edges = edgesOf(document);
  if (edges.some((edge) => edge.source === source && edge.target === target && edge.sourceHandle === sourceHandle)) return `${fromName} leads to ${toName} there already.`;
  if (sourceHandle === "tool" || to.label === "Tool") {
    if (sourceHandle !== "tool" || to.label !== "Tool") return to.label === "Tool" ? "Tools belong to an Agent: connect them with its handle for tools." : "Drop a tool of the palette on the Agent instead.";
    return edges.some((edge) => edge.target === target) ? `${toName} belongs to another Agent already.` : null;
  }
  if (sourceHandle === "agentBottom" || targetHandle === "agentTop") return subAgentProblem(document, from, to, sourceHandle);
  if (isSubAgent(document, source)) return `${fromName} is a sub-agent: its Agent calls it, and nothing follows it.`;
  if (isSubAgent(document, target)) return `${toName} is a sub-agent: only its Agent calls it.`;
  return null;
}

function subAgentProblem(document: Document, from: DrawnNode, to: DrawnNode, sourceHandle: string): string | null {
  if (sourceHandle !== "agentBottom") return "The upper handle is for the Agent above: connect it with that Agent's handle for sub-agents.";
  if (to.label !== "Agent") return "Only an Agent can be a sub-agent.";
  const edges = edgesOf(document);
  const above = edges.find((edge) => edge.target === to.id && edge.targetHandle === "agentTop");
  if (above) {
    const parent = nodesOf(document).get(above.source);
    return `${quoted(to)} is a sub-agent of ${parent ? quoted(parent) : "another Agent"} already, and a sub-agent belongs to one Agent.`;
  }
  const isInFlow = edges.some((edge) => (edge.source === to.id && !["agentBottom", "tool"].includes(edge.sourceHandle)) || edge.target === to.id);
  if (isInFlow) return `${quoted(to)} is a step of the flow. Remove its edges to make it a sub-agent.`;
  const seen = new Set<string>();
  for (let at: string | undefined = from.id; at !== undefined && !seen.has(at); at = edges.find((edge) => edge.target === at && edge.targetHandle === "agentTop")?.source) {
    seen.add(at);
    if (at === to.id) return `${quoted(to)} is above ${quoted(from)}, so it cannot be its sub-agent.`;
  }
  return null;
}

function borderProblem(document: Document, from: DrawnNode, to: DrawnNode): string {
  const nodes = nodesOf(document);
  const container = nodes.get(to.parent ?? "") ?? nodes.get(from.parent ?? "");
  return `An edge cannot cross the border of ${container ? quoted(container) : "a container"}. Connect the container itself, or a node on the same side.`;
}

export function quoted(node: DrawnNode): string {
  return `“${visibleName(node.name, 60)}”`;
}
