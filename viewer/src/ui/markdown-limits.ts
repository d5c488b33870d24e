/** Which texts are too much work as Markdown: the time of a parser grows faster than they do, and it goes as deep as they nest. */

const MAX_CHARS = 100_000;
const MAX_LINES = 2_000;
/** Items of lists, quotes, headings and rows. */
const MAX_BLOCKS = 800;
const MAX_DEPTH = 24;
const MAX_INDENT = 100;
/** Characters that may begin or end emphasis, code, links, tables and addresses. */
const MAX_MARKS = 4_000;

const MARKS = new Set([..."*_~`[]<&|@:"].map((each) => each.charCodeAt(0)));
const BLOCK = /[ \t]*(?:>|[-+*=|#]+|\d{1,9}[.)])/y;

/** Return whether a text is to be shown as it is written. */
export function isTooHeavy(text: string): boolean {
  if (text.length > MAX_CHARS) return true;
  let marks = 0;
  for (let at = 0; at < text.length; at++) {
    if (MARKS.has(text.charCodeAt(at)) && ++marks > MAX_MARKS) return true;
  }
  const lines = text.split("\n");
  if (lines.length > MAX_LINES) return true;
  let blocks = 0;
  for (const line of lines) {
    if (line.length - line.trimStart().length > MAX_INDENT) return true;
    const depth = depthOf(line);
    blocks += depth;
    if (depth > MAX_DEPTH || blocks > MAX_BLOCKS) return true;
  }
  return false;
}

/** Return how many blocks a line may open, one in another; more than the limit where it is exceeded. */
function depthOf(line: string): number {
  let depth = 0;
  let at = 0;
  while (depth <= MAX_DEPTH) {
    BLOCK.lastIndex = at;
    if (!BLOCK.test(line)) break;
    at = BLOCK.lastIndex;
    depth++;
  }
  return depth;
}
