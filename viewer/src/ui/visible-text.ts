/** Texts that others wrote, with what would deceive a reader made visible: control characters and changes of direction. */

// Controls except tab and line feed, bidirectional marks and overrides, invisible spaces and joiners.
const DECEPTIVE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufff9-\ufffb]/g;

/** Return the text with each deceptive character as its code: `⟨U+202E⟩`. A carriage return before a line feed goes. */
export function visibleText(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(DECEPTIVE, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** Return a name on one line, of at most so many characters. */
export function visibleName(text: string, most = 200): string {
  const line = visibleText(text).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most)}…` : line;
}
