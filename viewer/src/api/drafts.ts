/** The routes of the editor: the draft of an agent, and runs of it. Documents are texts, so that no number changes. */
import type * as replies from "./replies";
import { apiUrl } from "./base";
import { request, send } from "./request";

const below = (agentId: string): string => `/viewer/agents/${encodeURIComponent(agentId)}`;

function jsonOf(text: string): Blob {
  return new Blob([text], { type: "application/json" });
}

/** Change the title or the description of the agent. */
export function changeAgent(agentId: string, change: { title?: string; description?: string }): Promise<replies.AgentTitle> {
  return request(below(agentId), { method: "PATCH", body: change });
}

/** Return the reply of the draft as it is written. */
export async function readDraft(agentId: string): Promise<string> {
  return (await send(`${below(agentId)}/draft`)).text();
}

/** Change the draft by a JSON Patch. */
export function patchDraft(agentId: string, patch: string, etag: string): Promise<replies.SavedDraft> {
  return request(`${below(agentId)}/draft`, { method: "PATCH", body: jsonOf(patch), ifMatch: etag });
}

/** Replace the draft by a document. */
export function putDraft(agentId: string, document: string, etag: string): Promise<replies.SavedDraft> {
  return request(`${below(agentId)}/draft`, { method: "PUT", body: jsonOf(document), ifMatch: etag });
}

/** Make a version the draft. */
export function restoreVersion(agentId: string, versionId: string, etag: string, idempotencyKey: string): Promise<replies.SavedDraft> {
  return request(`${below(agentId)}/restore`, { method: "POST", body: { version_id: versionId }, ifMatch: etag, idempotencyKey });
}

export function runNode(agentId: string, nodeId: string, values: Readonly<Record<string, unknown>>, idempotencyKey: string): Promise<replies.StartedRun> {
  return request(`${below(agentId)}/nodes/${encodeURIComponent(nodeId)}/run`, { method: "POST", body: { values }, idempotencyKey });
}

/** Start the draft. */
export function startDraft(agentId: string, query: string, inputs: Readonly<Record<string, unknown>>, idempotencyKey: string): Promise<replies.StartedRun> {
  return request(`/agents/${encodeURIComponent(agentId)}/runs`, { method: "POST", body: { query, inputs, version: "draft" }, idempotencyKey });
}

/** Return the address from which a browser saves the draft as a file. */
export function exportUrl(agentId: string): string {
  return apiUrl(`${below(agentId)}/export`);
}
