/** The routes that repeat and compare runs, and what their dialogs show. */
import type * as replies from "./replies";
import { request } from "./request";
import type { components, operations } from "./schema";

type Body<Name extends "rerun" | "fork"> =
  NonNullable<operations[Name]["requestBody"]>["content"]["application/json"];

export type RerunBody = Body<"rerun">;
export type ForkBody = Body<"fork">;
export type Started = components["schemas"]["StartedReply"];
export type ForkPreview = components["schemas"]["ForkPreviewReply"];
export type Comparison = components["schemas"]["ComparisonReply"];
export type ComparedRun = components["schemas"]["ComparedRun"];
export type ComparedStep = components["schemas"]["ComparedStepReply"];
export type VersionDifferences = components["schemas"]["VersionDifferences"];
export type VersionRow = components["schemas"]["VersionRow"];
type RunDocument = components["schemas"]["RunDocumentReply"];

const PAGE_ROWS = 500;
const MAX_VERSIONS = 50;
const MAX_COPIES = 20;

const withSignal = (signal: AbortSignal | undefined): { signal?: AbortSignal } => (signal ? { signal } : {});

export function rerunRun(id: string, body: RerunBody, idempotencyKey: string): Promise<Started> {
  return request(`/runs/${id}/rerun`, { method: "POST", body, idempotencyKey });
}

export function forkRun(id: string, body: ForkBody, idempotencyKey: string): Promise<Started> {
  return request(`/runs/${id}/fork`, { method: "POST", body, idempotencyKey });
}

/** Return what a fork would do; nothing is written. */
export function previewFork(id: string, body: ForkBody, signal?: AbortSignal): Promise<ForkPreview> {
  return request(`/runs/${id}/fork`, { method: "POST", body: { ...body, dry_run: true }, ...withSignal(signal) });
}

/** Return the document that a run executes, with masks in place of secrets. */
export function readRunDocument(id: string, signal?: AbortSignal): Promise<RunDocument> {
  return request(`/runs/${id}/document`, withSignal(signal));
}

/** Return the newest versions of an agent. */
export async function listNewestVersions(agentId: string, signal?: AbortSignal): Promise<{ versions: readonly VersionRow[]; hasMore: boolean }> {
  const query = { limit: MAX_VERSIONS };
  const page = await request<components["schemas"]["VersionListReply"]>(`/viewer/agents/${agentId}/versions`, { query, ...withSignal(signal) });
  return { versions: page.versions, hasMore: page.next !== null };
}

/** Return the newest reruns and forks of a run. */
export async function listCopies(id: string, signal?: AbortSignal): Promise<readonly replies.RunRow[]> {
  const list = await request<replies.RunList>("/runs", { query: { source: id, limit: MAX_COPIES }, ...withSignal(signal) });
  return list.runs;
}

export function compareRuns(a: string, b: string, only: string | undefined, after: string | undefined, signal?: AbortSignal): Promise<Comparison> {
  return request(`/runs/${a}/compare/${b}`, { query: { only, after, limit: PAGE_ROWS }, ...withSignal(signal) });
}

export function compareStep(a: string, b: string, stepId: string, signal?: AbortSignal): Promise<ComparedStep> {
  return request(`/runs/${a}/compare/${b}/steps/${stepId}`, withSignal(signal));
}
