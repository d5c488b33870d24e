/** What the end of a message names: files that nodes made, and the sources that its text cites. */
import { isObject } from "../run-file/rows";
import type { ServerFile } from "../store/run";

/** A chunk that an answer cites. */
export interface Source {
  name: string;
  content: string;
  url: string | null;
}

export interface MessageEnd {
  sources: ReadonlyMap<number, Source>;
  files: readonly ServerFile[];
  /** Whether it could not be read. */
  hasFailed: boolean;
}

export const NOTHING: MessageEnd = { sources: new Map(), files: [], hasFailed: false };

type Fields = Readonly<Record<string, unknown>>;

const ID = /^[0-9a-f]{32}$/;

export function endOf(body: unknown): MessageEnd {
  return isObject(body) ? { sources: sourcesOf(body.reference), files: filesOf(body), hasFailed: false } : NOTHING;
}

/** Return the files of a `message_end`, each once. */
export function filesOf(end: Fields): ServerFile[] {
  const downloads: readonly unknown[] = Array.isArray(end.downloads) ? end.downloads : [];
  const given = [...downloads, end.attachment];
  const files = given.filter(isObject).flatMap((each) => {
    const id = text(each.doc_id);
    const name = text(each.filename) || text(each.file_name);
    return ID.test(id) && name ? [{ path: `/agents/attachments/${id}/download`, name, bytes: number(each.size) }] : [];
  });
  return [...new Map(files.map((file) => [file.path, file])).values()];
}

/** Return the chunks of a reference by their numbers. */
export function sourcesOf(reference: unknown): Map<number, Source> {
  const chunks = isObject(reference) && isObject(reference.chunks) ? reference.chunks : {};
  const found = Object.entries(chunks).flatMap(([written, chunk]): [number, Source][] => {
    if (!isObject(chunk) || !/^\d{1,6}$/.test(written)) return [];
    const url = text(chunk.url);
    const source = { name: text(chunk.document_name) || url, content: text(chunk.content), url: /^https?:\/\//i.test(url) ? url : null };
    return [[Number(written), source]];
  });
  return new Map(found);
}

/** Return the numbers that texts cite, each once, in the order in which a reader meets them. */
export function citedNumbers(texts: readonly string[], sources: ReadonlyMap<number, Source>): number[] {
  const numbers = texts.flatMap((written) => [...written.matchAll(/\[ID:\s*(\d{1,6})\]/g)].map((match) => Number(match[1])));
  return [...new Set(numbers)].filter((each) => sources.has(each));
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function number(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}
