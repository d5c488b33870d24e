/** Words that someone has typed, in titles. */

/** Return whether a title has all words, whatever their case. */
export function hasWords(title: string, text: string): boolean {
  const folded = title.toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => folded.includes(word));
}
