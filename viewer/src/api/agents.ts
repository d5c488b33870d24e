/** The routes of agents, their drafts and versions. */
import { apiUrl, type Query } from "./base";
import type * as replies from "./replies";
import { ApiError, request, send } from "./request";

export const DRAFT = "draft";

function options(signal: AbortSignal | undefined, query: Query = {}): { query: Query; signal?: AbortSignal } {
  return { query, ...(signal ? { signal } : {}) };
}

export function listAgentPage(query: Query, signal?: AbortSignal): Promise<replies.AgentList> {
  return request("/viewer/agents", options(signal, query));
}

export function readAgent(id: string, signal?: AbortSignal): Promise<replies.AgentHead> {
  return request(`/viewer/agents/${id}`, options(signal));
}

export function readDraft(id: string, signal?: AbortSignal): Promise<replies.Draft> {
  return request(`/viewer/agents/${id}/draft`, options(signal));
}

export function listVersions(id: string, before?: string, signal?: AbortSignal): Promise<replies.VersionList> {
  return request(`/viewer/agents/${id}/versions`, options(signal, { before }));
}

/** A version, or the draft, with the text of the reply: numbers and the order of keys are in the text alone. */
export interface VersionWithText extends replies.Version {
  text: string;
}

export async function readVersion(id: string, version: string, signal?: AbortSignal): Promise<VersionWithText> {
  const response = await send(`/viewer/agents/${id}/versions/${encodeURIComponent(version)}`, options(signal));
  const text = await response.text();
  return { ...(JSON.parse(text) as replies.Version), text };
}

/** The lists of runs and versions that pages of an agent show. */
export function listRecentRuns(agentId: string, limit: number, signal?: AbortSignal): Promise<replies.RunList> {
  return request("/runs", options(signal, { agent_id: agentId, limit }));
}

// -- making ------------------------------------------------------------------------------------------------------------
/** Return the tags of all agents, the most frequent first. */
export async function listTags(signal?: AbortSignal): Promise<string[]> {
  const { data } = await request<{ data: readonly Readonly<Record<string, unknown>>[] }>("/agents/tags", options(signal));
  return data.map(({ tag }) => String(tag));
}

export interface Template {
  id: string;
  title: string;
  description: string;
  /** The body of a start that shows what the agent does. */
  example: Readonly<Record<string, unknown>>;
}

export async function listTemplates(signal?: AbortSignal): Promise<Template[]> {
  const { data } = await request<{ data: readonly Readonly<Record<string, unknown>>[] }>("/agents/templates", options(signal));
  return data.map(({ id, title, description, example }) => ({
    id: String(id),
    title: localText(title),
    description: localText(description),
    example: typeof example === "object" && example !== null ? (example as Record<string, unknown>) : {},
  }));
}

function localText(text: unknown): string {
  if (typeof text === "string") return text;
  const found = typeof text === "object" && text !== null ? (text as Record<string, unknown>).en : undefined;
  return typeof found === "string" ? found : "";
}

export interface NewAgentChoice {
  title: string;
  template?: string;
  /** The model of a template's nodes, instead of the built-in one. */
  model?: string;
  copyOf?: string;
  /** A document, sent as it is. */
  document?: Blob;
}

export function createAgent({ title, template, model, copyOf, document }: NewAgentChoice, idempotencyKey: string): Promise<replies.NewAgent> {
  return request("/viewer/agents", {
    method: "POST",
    query: { title, template, model, copy_of: copyOf },
    idempotencyKey,
    ...(document ? { body: new Blob([document], { type: "application/json" }) } : {}),
  });
}

/** Return the line and column of a document that an error names. */
export function placeOf(error: unknown): { line: number; column: number } | null {
  const details = error instanceof ApiError && typeof error.details === "object" && error.details !== null ? (error.details as Record<string, unknown>) : {};
  return typeof details.line === "number" && typeof details.column === "number" ? { line: details.line, column: details.column } : null;
}

export function listChoices(kind: string, q?: string, signal?: AbortSignal): Promise<replies.Choices> {
  return request("/viewer/choices", options(signal, { kind, q }));
}

// -- versions ----------------------------------------------------------------------------------------------------------
export function publishDraft(id: string, fields: { title?: string; description?: string }, etag: string, idempotencyKey: string): Promise<replies.VersionRow> {
  return request(`/viewer/agents/${id}/publish`, { method: "POST", body: fields, ifMatch: etag, idempotencyKey });
}

// -- starting ----------------------------------------------------------------------------------------------------------
export interface StartBody {
  query: string;
  inputs?: Readonly<Record<string, unknown>>;
  /** `draft`, or the id of a version. */
  version: string;
}

export function startRun(id: string, body: StartBody, idempotencyKey: string): Promise<replies.Started> {
  return request(`/agents/${id}/runs`, { method: "POST", body, idempotencyKey });
}

/** Return the address that other programs call to start an agent. */
export function webhookUrl(id: string): string {
  return new URL(apiUrl(`/agents/${id}/webhook`), location.href).href;
}
