/**
 * The text of a JSON document, formatted with an indent of two, without loss: numbers stay as they are written (`1.0`,
 * 2⁶⁰), and keys keep their order. `JSON.parse` would change both.
 */

const TOKEN = /\s*("(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[{}[\],:])/y;

/** Return the text with one member or item on each line, as Python's `json.dumps(document, indent=2)` does it. */
export function formatJson(text: string): string {
  const tokens = tokensOf(text);
  let out = "";
  let depth = 0;
  const newLine = (): string => `\n${"  ".repeat(depth)}`;
  tokens.forEach((token, place) => {
    const next = tokens[place + 1];
    if (token === "{" || token === "[") {
      const isEmpty = next === "}" || next === "]";
      if (!isEmpty) depth++;
      out += isEmpty ? token : token + newLine();
    } else if (token === "}" || token === "]") {
      const isEmpty = tokens[place - 1] === "{" || tokens[place - 1] === "[";
      if (!isEmpty) depth--;
      out += isEmpty ? token : newLine() + token;
    } else if (token === ",") out += token + newLine();
    else if (token === ":") out += ": ";
    else out += token.startsWith('"') ? JSON.stringify(JSON.parse(token)) : token;
  });
  return `${out}\n`;
}

/** Return the text of one member of a JSON object, as it is written; null if the object has none. */
export function memberText(text: string, name: string): string | null {
  const tokens = tokensOf(text);
  let depth = 0;
  for (let place = 0; place < tokens.length; place++) {
    const token = tokens[place] ?? "";
    const isKey = depth === 1 && tokens[place + 1] === ":" && token.startsWith('"');
    if (isKey && JSON.parse(token) === name) {
      const begin = place + 2;
      return tokens.slice(begin, endOfValue(tokens, begin)).join("");
    }
    depth += opening(token);
  }
  return null;
}

function endOfValue(tokens: readonly string[], begin: number): number {
  let depth = 0;
  for (let place = begin; place < tokens.length; place++) {
    depth += opening(tokens[place] ?? "");
    if (depth === 0) return place + 1;
  }
  return tokens.length;
}

function opening(token: string): number {
  return token === "{" || token === "[" ? 1 : token === "}" || token === "]" ? -1 : 0;
}

function tokensOf(text: string): string[] {
  const tokens: string[] = [];
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(text); match; match = TOKEN.exec(text)) tokens.push(match[1] ?? "");
  return tokens;
}
