/** Markers in the texts of answers: reasoning stands between two of them, and the ids of audio files between two others. */

const THINKING = /\ufdd0([^\ufdd1]*)(?:\ufdd1|$)/g;
const AUDIO = /\ufdd2([0-9a-f]{32})\ufdd3/g;
const ANY_AUDIO = /\ufdd2[0-9a-f]{0,32}\ufdd3?|\ufdd3/g;

/** The longest answer that is shown as Markdown; a longer one is shown as plain text. */
export const MAX_MARKDOWN_CHARS = 100_000;

export interface MarkedText {
  answer: string;
  reasoning: string;
  /** The ids of audio files, in the order of the sentences that they speak. */
  audio: readonly string[];
}

export function splitMarkers(written: string): MarkedText {
  const audio = [...written.matchAll(AUDIO)].map((match) => match[1] ?? "");
  const text = written.replace(ANY_AUDIO, "");
  const reasoning = [...text.matchAll(THINKING)].map((match) => match[1] ?? "").join("\n");
  return { answer: text.replace(THINKING, ""), reasoning, audio };
}
