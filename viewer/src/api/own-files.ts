/** Addresses of files of this API in texts: files that runs made. No other address is ever loaded. */
import { basePath } from "./base";

const FILE = /^\/(?:agents\/attachments\/([0-9a-f]{32})\/(?:download|preview)|documents\/artifact\/([0-9a-f]{32})\.([A-Za-z0-9]{1,10}))(?:\?([^#]*))?$/;
const PICTURES: Readonly<Record<string, string>> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };
const AUDIO: Readonly<Record<string, string>> = { mp3: "audio/mpeg", wav: "audio/wav", ogg: "audio/ogg", m4a: "audio/mp4", flac: "audio/flac", weba: "audio/webm" };

/** Return the route of the file that an address leads to; null for any other address. */
export function ownFilePath(url: string, base: string = basePath(), origin: string = globalThis.location?.origin ?? ""): string | null {
  const path = origin && url.startsWith(`${origin}/`) ? url.slice(origin.length) : url;
  const prefixes = [`${base === "/" ? "" : base}/api/v1`, "/api/v1"];
  for (const prefix of prefixes) {
    const found = path.startsWith(`${prefix}/`) ? FILE.exec(path.slice(prefix.length)) : null;
    if (found?.[1]) return `/agents/attachments/${found[1]}/download${extensionOf(found[4] ?? "")}`;
    if (found?.[2]) return `/documents/artifact/${found[2]}.${found[3]}`;
  }
  return null;
}

function extensionOf(query: string): string {
  const extension = new URLSearchParams(query).get("ext") ?? "";
  return /^[A-Za-z0-9]{1,10}$/.test(extension) ? `?ext=${extension}` : "";
}

/** Return the media type of a picture by the end of its name; null for files of other kinds. */
export function pictureType(name: string): string | null {
  return PICTURES[endingOf(name)] ?? null;
}

/** Return the media type of audio by the end of its name; null for files of other kinds. */
export function audioType(name: string): string | null {
  return AUDIO[endingOf(name)] ?? null;
}

function endingOf(name: string): string {
  const [, fromQuery, fromName] = /[?&]ext=([A-Za-z0-9]+)|\.([A-Za-z0-9]+)(?:\?.*)?$/.exec(name) ?? [];
  return (fromQuery ?? fromName ?? "").toLowerCase();
}
