/** The routes of the playground: an agent and its versions, conversations and their runs, starts and reruns. */
import type { RunList } from "./replies";
import { request } from "./request";
import type { components } from "./schema";

type Schemas = components["schemas"];

export type AgentHead = Schemas["AgentHeadReply"];
export type VersionList = Schemas["VersionListReply"];
export type Version = Schemas["VersionReply"];
export type Conversation = Schemas["ConversationMessagesReply"];
export type ConversationMessage = Schemas["MessageRow"];
export type StartedRun = Schemas["StartedReply"];

const PAGE = 50;

/** What a turn does while another one of its conversation is not over. */
export type OnBusy = "enqueue" | "interrupt";

export interface StartBody {
  query?: string;
  /** Answers to the form of Begin, each `{type, value}`. */
  inputs?: Readonly<Record<string, unknown>>;
  /** Descriptors of uploaded files. */
  files?: readonly unknown[];
  session_id?: string;
  version?: string;
  on_busy?: OnBusy;
}

export function readAgent(id: string, signal?: AbortSignal): Promise<AgentHead> {
  return request(`/viewer/agents/${id}`, { ...(signal ? { signal } : {}) });
}

/** Return the newest versions of an agent, 100 at most. */
export function listVersions(id: string, signal?: AbortSignal): Promise<VersionList> {
  return request(`/viewer/agents/${id}/versions`, { query: { limit: 100 }, ...(signal ? { signal } : {}) });
}

export function readVersion(id: string, versionId: string, signal?: AbortSignal): Promise<Version> {
  return request(`/viewer/agents/${id}/versions/${versionId}`, { ...(signal ? { signal } : {}) });
}

/** Return the last messages of a conversation, or those before a message number. */
export function readConversation(id: string, before?: number, signal?: AbortSignal): Promise<Conversation> {
  return request(`/viewer/conversations/${id}`, { query: { before, limit: PAGE }, ...(signal ? { signal } : {}) });
}

/** Return the newest runs of a conversation, or those before a run. */
export function listConversationRuns(id: string, before?: string, signal?: AbortSignal): Promise<RunList> {
  return request("/runs", { query: { session_id: id, before, limit: PAGE }, ...(signal ? { signal } : {}) });
}

export function startRun(agentId: string, body: StartBody, idempotencyKey: string): Promise<StartedRun> {
  return request(`/agents/${agentId}/runs`, { method: "POST", body, idempotencyKey });
}

/** Run a turn again with another query, in a new conversation that begins with what was said before it. */
export function rerunWithQuery(runId: string, query: string, idempotencyKey: string): Promise<StartedRun> {
  return request(`/runs/${runId}/rerun`, { method: "POST", body: { query, version: "same", conversation: "new" }, idempotencyKey });
}

/** Return what the end of a message says: its sources and files. Null for a node that writes none. */
export async function readMessageEnd(runId: string, activationId: string, signal?: AbortSignal): Promise<unknown> {
  const query = { name: "message_end", activation: activationId, limit: 1, detail: 1 };
  const { events } = await request<Schemas["EventListReply"]>(`/runs/${runId}/events`, { query, ...(signal ? { signal } : {}) });
  return events[0]?.data ?? null;
}
