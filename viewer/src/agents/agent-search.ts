/** The search parameters of the pages of agents. */
import type { Query } from "../api/base";

const MAX_TEXT_CHARS = 200;

export interface AgentListSearch {
  q?: string;
  tag?: string;
}

/** Return the valid filters of an address. */
export function agentListSearch({ q, tag }: Readonly<Record<string, unknown>>): AgentListSearch {
  const clean = (value: unknown): string => (typeof value === "string" ? value.trim().slice(0, MAX_TEXT_CHARS) : "");
  return { ...(clean(q) && { q: clean(q) }), ...(clean(tag) && { tag: clean(tag) }) };
}

export function agentFilters({ q, tag }: AgentListSearch): Query {
  return { q, tag };
}

export interface AgentSearch {
  /** The id of a version; without it the draft is shown. */
  version?: string;
  /** The node whose parameters are shown. */
  node?: string;
}

export function agentSearch({ version, node }: Readonly<Record<string, unknown>>): AgentSearch {
  return {
    ...(typeof version === "string" && /^[0-9a-f]{32}$/.test(version) && { version }),
    ...(typeof node === "string" && node && { node: node.slice(0, MAX_TEXT_CHARS) }),
  };
}
