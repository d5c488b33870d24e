/** Files of this API that an answer links to: they need a request with the page's own right, so no browser loads them. */
import { basePath } from "../api/base";

const FILE = /^\/(?:agents\/attachments\/([0-9a-f]{32})\/(?:download|preview)|documents\/artifact\/([0-9a-f]{32})\.([A-Za-z0-9]{1,10}))(?:\?[^#]*)?$/;
const PICTURES: Readonly<Record<string, string>> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };

/** Return the route of the file that an address leads to; null for any other address. */
export function ownFilePath(url: string, base: string = basePath(), origin: string = globalThis.location?.origin ?? ""): string | null {
  const path = origin && url.startsWith(`${origin}/`) ? url.slice(origin.length) : url;
  const prefixes = [`${base === "/" ? "" : base}/api/v1`, "/api/v1"];
  for (const prefix of prefixes) {
    const found = path.startsWith(`${prefix}/`) ? FILE.exec(path.slice(prefix.length)) : null;
    if (found?.[1]) return `/agents/attachments/${found[1]}/download`;
    if (found?.[2]) return `/documents/artifact/${found[2]}.${found[3]}`;
  }
  return null;
}

/** Return the media type of a picture by the end of its name; null for files of other kinds. */
export function pictureType(name: string): string | null {
  return PICTURES[/\.([A-Za-z0-9]+)(?:\?.*)?$/.exec(name)?.[1]?.toLowerCase() ?? ""] ?? null;
}
