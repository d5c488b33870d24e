/** The routes from which the editor makes its palette and forms. */
import type { ChoiceList } from "./replies";
import { ApiError, request, send } from "./request";

export type ChoiceKind = "model" | "knowledge_base" | "memory" | "mcp" | "tool";

/** The catalogue as the API sends it, with its ETag; `body` is null if what was known still holds. */
export interface CatalogueReply {
  body: unknown;
  etag: string | null;
}

const MAX_WORDS = 200;

export async function readCatalogue(etag: string | null, signal?: AbortSignal): Promise<CatalogueReply> {
  const response = await send("/components", { ...(etag === null ? {} : { ifNoneMatch: etag }), ...(signal ? { signal } : {}) });
  if (response.status === 304) return { body: null, etag };
  try {
    return { body: (await response.json()) as unknown, etag: response.headers.get("ETag") };
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(response.status, "not_json", "The catalogue of components was not read as a whole.");
  }
}

export function listChoices(kind: ChoiceKind, words: string, signal?: AbortSignal): Promise<ChoiceList> {
  return request("/viewer/choices", { query: { kind, q: words.slice(0, MAX_WORDS) }, ...(signal ? { signal } : {}) });
}
