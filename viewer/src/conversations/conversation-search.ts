/** The search parameters of the list of conversations, and of one conversation. */
import { isHexId } from "../ui/search-values";

const MAX_TEXT_CHARS = 200;

export interface ConversationListSearch {
  agent?: string;
  q?: string;
}

export interface ConversationSearch {
  /** Shows the messages before this number; the newest ones if it is not given. */
  before?: string;
}

export function conversationListSearch({ agent, q }: Readonly<Record<string, unknown>>): ConversationListSearch {
  const words = typeof q === "string" ? q.trim().slice(0, MAX_TEXT_CHARS) : "";
  return { ...(isHexId(agent) && { agent }), ...(words && { q: words }) };
}

export function conversationSearch({ before }: Readonly<Record<string, unknown>>): ConversationSearch {
  return typeof before === "string" && /^[1-9]\d{0,8}$/.test(before) ? { before } : {};
}
