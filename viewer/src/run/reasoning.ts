/** What models thought and what they answered: reasoning stands in their texts between two markers. */

const THINKING = /\ufdd0([^\ufdd1]*)(?:\ufdd1|$)/g;

/** The longest answer that is shown as Markdown; a longer one is shown as plain text. */
export const MAX_MARKDOWN_CHARS = 100_000;

export function splitReasoning(text: string): { answer: string; reasoning: string } {
  const reasoning = [...text.matchAll(THINKING)].map((match) => match[1] ?? "").join("\n");
  return { answer: text.replace(THINKING, ""), reasoning };
}
