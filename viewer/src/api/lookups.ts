/** Short lists for search fields and filters. */
import type { Query } from "./base";
import type { AgentList, RunList, VersionList } from "./replies";
import { request } from "./request";

function options(query: Query, signal?: AbortSignal): { query: Query; signal?: AbortSignal } {
  return { query, ...(signal ? { signal } : {}) };
}

export function findRuns(query: Query, signal?: AbortSignal): Promise<RunList> {
  return request("/runs", options(query, signal));
}

export function findAgents(query: Query, signal?: AbortSignal): Promise<AgentList> {
  return request("/viewer/agents", options(query, signal));
}

export function listVersions(agentId: string, signal?: AbortSignal): Promise<VersionList> {
  return request(`/viewer/agents/${agentId}/versions`, options({ limit: 100 }, signal));
}
