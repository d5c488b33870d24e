/** The routes of runs that pages use. */
import type { Query } from "./base";
import type * as replies from "./replies";
import { ApiError, newIdempotencyKey, request, send } from "./request";

export const PAGE_ROWS = 50;
const MAX_LISTED = 2000;

function options(signal: AbortSignal | undefined, query: Query = {}): { query: Query; signal?: AbortSignal } {
  return { query, ...(signal ? { signal } : {}) };
}

export function listRuns(filters: Query, before?: string, signal?: AbortSignal): Promise<replies.RunList> {
  return request("/runs", options(signal, { ...filters, before, limit: PAGE_ROWS }));
}

/** Return the states of some runs (at most 100), and with `newerThan` how many runs of the list are newer. */
export function readRunStates(ids: readonly string[], filters: Query, newerThan?: string, signal?: AbortSignal): Promise<replies.RunStates> {
  const newer = newerThan === undefined ? {} : { ...filters, newer_than: newerThan };
  return request("/runs/states", options(signal, { ids: ids.join(",") || newerThan, ...newer })); // one id at least
}

export function listAgents(signal?: AbortSignal): Promise<replies.AgentList> {
  return request("/viewer/agents", options(signal, { limit: 100 }));
}

export function cancelRuns(ids: readonly string[], idempotencyKey: string): Promise<replies.CancelledRuns> {
  return request("/runs/cancel", { method: "POST", body: { ids }, idempotencyKey });
}

export function readRun(id: string, signal?: AbortSignal): Promise<replies.Run> {
  return request(`/runs/${id}`, options(signal, { activations: "none" }));
}

export function readGraph(id: string, signal?: AbortSignal): Promise<replies.Graph> {
  return request(`/runs/${id}/graph`, options(signal));
}

export interface RunAndGraph {
  run: replies.Run;
  /** Null if the version of the run is gone. */
  graph: replies.Graph | null;
}

/** Read a run and its graph. `isSignIn`: nobody knows yet whether there is a reader, and a 401 is no sign-out. */
export async function readRunAndGraph(id: string, signal?: AbortSignal, isSignIn = false): Promise<RunAndGraph> {
  const [run, graph] = await Promise.all([
    request<replies.Run>(`/runs/${id}`, { ...options(signal, { activations: "none" }), isSignIn }),
    request<replies.Graph>(`/runs/${id}/graph`, { ...options(signal), isSignIn }).catch((error: unknown) => {
      if (error instanceof ApiError && error.status === 404) return null;
      throw error;
    }),
  ]);
  return { run, graph };
}

export function listActivations(id: string, query: Query, signal?: AbortSignal): Promise<replies.ActivationList> {
  return request(`/runs/${id}/activations`, options(signal, { limit: MAX_LISTED, ...query }));
}

/** Return a page of the steps outside of containers. */
export function listTopActivations(id: string, after?: string, signal?: AbortSignal): Promise<replies.ActivationList> {
  const page = after === undefined ? "" : `&after=${encodeURIComponent(after)}`;
  return request(`/runs/${id}/activations?scope=&limit=${MAX_LISTED}${page}`, options(signal)); // an empty scope is a filter
}

export function readActivation(id: string, activationId: string, signal?: AbortSignal): Promise<replies.Activation> {
  return request(`/runs/${id}/activations/${activationId}`, options(signal));
}

/** Return what is said about a step without its values: why it waits, what it reads. */
export function readStepDetails(id: string, activationId: string): Promise<replies.Activation> {
  return request(`/runs/${id}/activations/${activationId}`, { query: { values: "none" } });
}

export function readCriticalPath(id: string): Promise<replies.Run> {
  return request(`/runs/${id}`, { query: { activations: "none", critical: 1 } });
}

/** Return a page of the items of a container, from a row number on. */
export function listItems(id: string, containerId: string, from: number): Promise<replies.ItemList> {
  return request(`/runs/${id}/items`, { query: { of: containerId, from, limit: MAX_LISTED } });
}

/** Return a version of an agent with its document; secrets are masked. */
/** The path of the route that exports a run as one file. */
export function exportPath(id: string): string {
  return `/runs/${id}/export`;
}

export function valuePath(id: string, activationId: string, kind: string, name: string): string {
  return `/runs/${id}/activations/${activationId}/values/${kind}/${encodeURIComponent(name)}`;
}

/** Return a value whole: a text, or JSON. */
export async function readWholeValue(id: string, activationId: string, kind: string, name: string): Promise<unknown> {
  const { text, isJson } = await readValueText(id, activationId, kind, name);
  return isJson ? (JSON.parse(text) as unknown) : text;
}

/** Return a value whole as it is written: a text, or the text of its JSON with all digits of its numbers. */
export async function readValueText(id: string, activationId: string, kind: string, name: string): Promise<{ text: string; isJson: boolean }> {
  const response = await send(valuePath(id, activationId, kind, name), { accept: "*/*" });
  const isJson = response.headers.get("Content-Type")?.startsWith("application/json") ?? false;
  return { text: await response.text(), isJson };
}

export function listAttempts(id: string, after?: string, signal?: AbortSignal): Promise<replies.AttemptList> {
  return request(`/runs/${id}/attempts`, options(signal, { after }));
}

export function listToolCalls(id: string, after?: string, signal?: AbortSignal): Promise<replies.ToolCallList> {
  return request(`/runs/${id}/tool_calls`, options(signal, { after }));
}

export function listModelCalls(id: string, after?: string, signal?: AbortSignal): Promise<replies.ModelCallList> {
  return request(`/runs/${id}/model_calls`, options(signal, { after }));
}

export function readModelCall(id: string, callId: string): Promise<replies.WholeModelCall> {
  return request(`/runs/${id}/model_calls/${callId}`);
}

/** Return events after a position, text between them included, with their steps and times. */
export function listEvents(id: string, after: string, signal?: AbortSignal): Promise<replies.EventList> {
  return request(`/runs/${id}/events`, options(signal, { after, detail: 1 }));
}

/** Return one stored event by its number, with its values. */
export async function readEvent(id: string, number: number): Promise<unknown> {
  const { events } = await request<replies.EventList>(`/runs/${id}/events`, { query: { after: number - 1, limit: 1, detail: 1 } });
  return events[0]?.data ?? null;
}

export function cancelRun(id: string, idempotencyKey: string): Promise<unknown> {
  return request(`/runs/${id}/cancel`, { method: "POST", body: {}, idempotencyKey });
}

export interface Answers {
  inputs?: Readonly<Record<string, unknown>>;
  outcomes?: Readonly<Record<string, "happened" | "again">>;
  budget?: Readonly<Record<string, number | string>>;
}

/** Answer the forms of a run that waits, or raise its budget. */
export function resumeRun(id: string, answers: Answers, idempotencyKey: string): Promise<unknown> {
  return request(`/runs/${id}/resume`, { method: "POST", body: answers, idempotencyKey });
}

/** Store a file for an agent; return what a field of the type `file` has as its value. */
export async function uploadFile(agentId: string, file: File): Promise<unknown> {
  const body = new FormData();
  body.append("file", file);
  const reply = await request<unknown>(`/agents/${agentId}/upload`, { method: "POST", body, idempotencyKey: newIdempotencyKey() });
  return typeof reply === "object" && reply !== null && "data" in reply ? reply.data : reply;
}
