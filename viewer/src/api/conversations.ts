/** The routes of conversations. */
import type { Query } from "./base";
import type { ConversationList, ConversationMessages } from "./replies";
import { request } from "./request";

export const PAGE_MESSAGES = 50;

export function listConversations(query: Query, signal?: AbortSignal): Promise<ConversationList> {
  return request("/viewer/conversations", { query, ...(signal ? { signal } : {}) });
}

/** Return messages before a number, or the newest ones, in order. */
export function readMessages(id: string, before?: number, limit = PAGE_MESSAGES, signal?: AbortSignal): Promise<ConversationMessages> {
  return request(`/viewer/conversations/${id}`, { query: { before, limit }, ...(signal ? { signal } : {}) });
}
