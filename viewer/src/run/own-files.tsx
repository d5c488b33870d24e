/** Files of our own routes that a value names: a link to each, and images as images. Nothing else is ever loaded. */
import type { ReactNode } from "react";

import { apiUrl } from "../api/base";
import { texts } from "../texts";
import { visibleName } from "../ui/visible-text";
import { useRunContext } from "./use-run";

const ADDRESS = /\/api\/v1(\/agents\/attachments\/[\w.-]{1,80}\/(?:download|preview)|\/documents\/artifact\/[\w.%-]{1,120})(\?[\w=&%.-]{0,300})?/g;
const IMAGE = /^\/documents\/artifact\/[^?]+\.(png|jpe?g)(\?|$)/i;
const MAX_FILES = 20;
const MAX_STRINGS = 2000;
const MAX_CHARS = 200_000;

/** Return the addresses of files, below the API, that a value names. */
export function ownFiles(value: unknown): string[] {
  const found = new Set<string>();
  let left = MAX_STRINGS;
  const pending: unknown[] = [value];
  while (pending.length && left-- > 0 && found.size < MAX_FILES) {
    const each = pending.pop();
    if (typeof each === "string") {
      for (const [, path = "", query = ""] of each.slice(0, MAX_CHARS).matchAll(ADDRESS)) found.add(path + query);
    } else if (typeof each === "object" && each !== null) {
      const { doc_id: id, format } = each as Record<string, unknown>;
      if (typeof id === "string" && /^[\w-]{8,80}$/.test(id)) found.add(`/agents/attachments/${id}/download${typeof format === "string" && /^\w{1,10}$/.test(format) ? `?ext=${format}` : ""}`);
      pending.push(...(Object.values(each) as unknown[]).slice(0, MAX_STRINGS));
    }
  }
  return [...found].slice(0, MAX_FILES);
}

export function OwnFiles({ value }: { value: unknown }): ReactNode {
  const { contents } = useRunContext();
  const files = contents.valueUrl ? ownFiles(value) : []; // a run out of a file has no server
  if (!files.length) return null;
  return (
    <ul aria-label={texts.inspector.files} className="mt-1">
      {files.map((path) => (
        <li key={path}>
          <a href={apiUrl(path)} download className="text-accent underline">
            {visibleName(decodeURIComponent(path.split("?")[0]?.split("/").slice(-2).join("/") ?? path), 100)}
          </a>
          {IMAGE.test(path) ? <img src={apiUrl(path)} alt={texts.inspector.image} className="mt-1 max-h-80 max-w-full border border-line" /> : null}
        </li>
      ))}
    </ul>
  );
}
