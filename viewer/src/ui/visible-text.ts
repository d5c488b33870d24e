/** Texts that others wrote, with what would deceive a reader made visible: control characters and changes of direction. */

// Controls except tab and line feed, bidirectional marks and overrides, invisible spaces, joiners and fillers, and tags, in which a text can be
// hidden; a flag of six tags at most is left alone.
const DECEPTIVE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|(?<!\u{1f3f4}[\u{e0000}-\u{e007f}]{0,6})[\u{e0000}-\u{e007f}]/gu;

/** Return the text with each deceptive character as its code: `⟨U+202E⟩`. A carriage return before a line feed goes. */
export function visibleText(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(DECEPTIVE, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** Return a name on one line, of at most so many characters. */
export function visibleName(text: string, most = 200): string {
  const head = text.slice(0, 4 * most); // a name of a megabyte is not read to its end
  const line = visibleText(head).replace(/\s+/g, " ").trim();
  return line.length > most || head.length < text.length ? `${line.slice(0, most)}…` : line;
}
