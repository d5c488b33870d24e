/** The routes of the shares of a run. */
import type * as replies from "./replies";
import { request } from "./request";

export const HIDEABLE = ["inputs", "outputs", "prompts", "talk", "cost", "errors"] as const;
export type Hideable = (typeof HIDEABLE)[number];

export interface NewShare {
  /** Seconds. */
  expires_in: number;
  hide: readonly Hideable[];
  may_answer: boolean;
  note: string;
}

export function listShares(runId: string, after?: string, signal?: AbortSignal): Promise<replies.ShareList> {
  return request(`/runs/${runId}/shares`, { query: { after }, ...(signal ? { signal } : {}) });
}

/** Share a run; the reply alone has the link. */
export function createShare(runId: string, share: NewShare, idempotencyKey: string): Promise<replies.CreatedShare> {
  return request(`/runs/${runId}/shares`, { method: "POST", body: share, idempotencyKey });
}

export function revokeShare(runId: string, shareId: string): Promise<unknown> {
  return request(`/runs/${runId}/shares/${shareId}`, { method: "DELETE" });
}
