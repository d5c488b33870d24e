/**
 * Which nodes can have run before another: those that the API's validation does not refuse as "reads nothing".
 *
 * Nodes in different containers are compared by what contains them at the top; within one container every node may
 * have run, in an earlier pass.
 */
import type { RunNode } from "./document-nodes";

type Nodes = ReadonlyMap<string, RunNode>;

const ITEMS: Readonly<Record<string, string>> = { IterationItem: "Iteration", LoopItem: "Loop" };

export interface RunOrder {
  /** Whether a value of the node can be there when the reader runs. */
  canBeRead: (node: string, reader: string) => boolean;
  /** How many steps the node is before the reader, at the top; null if no path leads from it to the reader. */
  distance: (node: string, reader: string) => number | null;
}

export function runOrder(nodes: Nodes): RunOrder {
  const items = firstItems(nodes);
  const top = topOf(nodes);
  const edges = topEdges(nodes, new Set(items.values()), top);
  const before = reversed(edges);
  const unreached = unreachedOf(nodes);
  const known = new Map<string, ReadonlyMap<string, number>>();
  const distances = (from: string, along: ReadonlyMap<string, ReadonlySet<string>>, key: string): ReadonlyMap<string, number> => {
    const found = known.get(key + from) ?? stepsFrom(from, along);
    known.set(key + from, found);
    return found;
  };
  const above = (node: string): ReadonlyMap<string, number> => distances(node, before, "<");
  const below = (node: string): ReadonlyMap<string, number> => distances(node, edges, ">"); // one search for all nodes after a reader
  const mayRepeat = (node: string): boolean => {
    const forward = reversed(withoutBackEdges(edges, ["begin", ...items.values(), ...nodes.keys()]));
    return stepsFrom(node, forward).size !== above(node).size;
  };
  return {
    canBeRead: (node, reader) => {
      if (!nodes.has("begin") || !nodes.has(reader) || unreached.has(reader)) return true; // nothing is said of its order
      if (unreached.has(node)) return false;
      const [later, earlier] = [top(node), top(reader)];
      if (later !== earlier) return !below(earlier).has(later) || above(earlier).has(later);
      return node !== reader || node !== later || isContainer(nodes.get(node)) || mayRepeat(node);
    },
    distance: (node, reader) => above(top(reader)).get(top(node)) ?? null,
  };
}

function isContainer(node: RunNode | undefined): boolean {
  return node?.component === "Iteration" || node?.component === "Loop";
}

/** The first item node of each container, where its passes begin. */
function firstItems(nodes: Nodes): Map<string, string> {
  const items = new Map<string, string>();
  for (const node of nodes.values()) {
    const container = node.parent === null ? undefined : nodes.get(node.parent);
    if (container && ITEMS[node.component] === container.component && !items.has(container.id)) items.set(container.id, node.id);
  }
  return items;
}

function topOf(nodes: Nodes): (node: string) => string {
  return (node) => {
    let outermost = node;
    for (let steps = 0; steps < 100; steps++) {
      const parent = nodes.get(outermost)?.parent;
      if (parent === null || parent === undefined || !nodes.has(parent)) break;
      outermost = parent;
    }
    return outermost;
  };
}

function topEdges(nodes: Nodes, items: ReadonlySet<string>, top: (node: string) => string): Map<string, Set<string>> {
  const edges = new Map<string, Set<string>>();
  for (const node of nodes.values())
    for (const target of node.next) {
      const [source, end] = [top(node.id), top(target)];
      if (nodes.has(target) && !items.has(target) && source !== end) edges.set(source, (edges.get(source) ?? new Set<string>()).add(end));
    }
  return edges;
}

function reversed(edges: ReadonlyMap<string, ReadonlySet<string>>): Map<string, Set<string>> {
  const turned = new Map<string, Set<string>>();
  for (const [source, ends] of edges) for (const end of ends) turned.set(end, (turned.get(end) ?? new Set<string>()).add(source));
  return turned;
}

/** The nodes that edges lead to from one, with the number of steps; the node itself only if it is in a cycle. */
function stepsFrom(from: string, edges: ReadonlyMap<string, ReadonlySet<string>>): Map<string, number> {
  const steps = new Map<string, number>();
  let ends: readonly string[] = [from];
  for (let step = 1; ends.length > 0; step++) {
    const next = new Set(ends.flatMap((end) => [...(edges.get(end) ?? [])]).filter((end) => !steps.has(end)));
    for (const end of next) steps.set(end, step);
    ends = [...next];
  }
  return steps;
}

/** The edges without those that lead back to a node on the path of a search depth first from the roots. */
function withoutBackEdges(edges: ReadonlyMap<string, ReadonlySet<string>>, roots: readonly string[]): Map<string, Set<string>> {
  const forward = new Map<string, Set<string>>();
  const state = new Map<string, "open" | "done">();
  for (const root of roots) {
    if (state.has(root)) continue;
    state.set(root, "open");
    const path = [{ node: root, rest: [...(edges.get(root) ?? [])] }];
    for (let last = path.at(-1); last; last = path.at(-1)) {
      const end = last.rest.shift();
      if (end === undefined) {
        state.set(last.node, "done");
        path.pop();
      } else if (state.get(end) !== "open") {
        forward.set(last.node, (forward.get(last.node) ?? new Set<string>()).add(end));
        if (!state.has(end)) {
          state.set(end, "open");
          path.push({ node: end, rest: [...(edges.get(end) ?? [])] });
        }
      }
    }
  }
  return forward;
}

function unreachedOf(nodes: Nodes): Set<string> {
  const items = new Map<string, string[]>();
  for (const node of nodes.values()) {
    const container = node.parent === null ? undefined : nodes.get(node.parent);
    if (container && ITEMS[node.component] === container.component) items.set(container.id, [...(items.get(container.id) ?? []), node.id]);
  }
  const unreached = new Set(nodes.keys());
  const open = ["begin"];
  for (let node = open.pop(); node !== undefined; node = open.pop())
    if (unreached.delete(node)) open.push(...(items.get(node) ?? []), ...(nodes.get(node)?.next ?? []));
  return unreached;
}
