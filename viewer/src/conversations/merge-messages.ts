/** Messages of several pages as one list. */
import type { ConversationMessage } from "../api/replies";

/** Return the messages of pages that may overlap, each once, in order. */
export function mergeMessages(pages: readonly (readonly ConversationMessage[])[]): ConversationMessage[] {
  const byNumber = new Map(pages.flat().map((message) => [message.number, message]));
  return [...byNumber.values()].sort((a, b) => a.number - b.number);
}
