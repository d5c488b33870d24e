/** Server-sent events out of a body that arrives in chunks. */

export interface ServerSentEvent {
  name: string;
  id: string | null;
  data: string;
}

/** Splits texts into events; a comment (heartbeat) gives no event. */
export class EventSplitter {
  private rest = "";

  feed(text: string): ServerSentEvent[] {
    const blocks = (this.rest + text).replaceAll("\r\n", "\n").split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.map(eventOf).filter((event) => event !== null);
  }
}

function eventOf(block: string): ServerSentEvent | null {
  let name = "message";
  let id: string | null = null;
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    const field = line.slice(0, colon);
    if (field === "event") name = value;
    else if (field === "id") id = value;
    else if (field === "data") data.push(value);
  }
  return data.length ? { name, id, data: data.join("\n") } : null;
}
