/** Requests to the API: the only place that sends them. Every failure is an ApiError. */
import { apiUrl, type Query } from "./base";
import { noteServerTime } from "./server-clock";

export interface RequestOptions {
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  query?: Query;
  /** Sent as JSON, or as it is if it is FormData or a Blob (a document whose text must not change). */
  body?: unknown;
  /** The ETag that a draft must still have. */
  ifMatch?: string;
  /** The ETag of what is known: a reply 304 without a body says that it still holds. */
  ifNoneMatch?: string;
  signal?: AbortSignal;
  /** Of one click: a repeated request with it has its effect once. */
  idempotencyKey?: string;
  accept?: string;
  /** Whether a 401 means that the reader is signed out; not while signing in. */
  isSignIn?: boolean;
}

/** Why a request failed. `status` is 0 and `code` is `unreachable` if there was no answer. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: unknown = null,
    /** Seconds, from `Retry-After`. */
    readonly retryAfter: number | null = null,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

export const UNREACHABLE = "The API does not answer. The page tries again.";
const signedOutListeners = new Set<() => void>();

/** Call a function whenever a request is refused because the reader is no longer signed in. */
export function onSignedOut(listener: () => void): () => void {
  signedOutListeners.add(listener);
  return () => signedOutListeners.delete(listener);
}

export function reportSignedOut(): void {
  for (const listener of signedOutListeners) listener();
}

export function newIdempotencyKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Send a request; return its reply if it has succeeded. Raises ApiError; an abort raises AbortError. */
export async function send(path: string, options: RequestOptions = {}): Promise<Response> {
  const { method = "GET", query, body, ifMatch, ifNoneMatch, signal, idempotencyKey, accept = "application/json", isSignIn = false } = options;
  const headers = new Headers({ Accept: accept, "X-Easel-Viewer": "1" });
  const isJson = body !== undefined && !(body instanceof FormData) && !(body instanceof Blob);
  if (ifMatch !== undefined) headers.set("If-Match", ifMatch);
  if (ifNoneMatch !== undefined) headers.set("If-None-Match", ifNoneMatch);
  if (isJson) headers.set("Content-Type", "application/json");
  if (idempotencyKey !== undefined) headers.set("Idempotency-Key", idempotencyKey);
  let response: Response;
  try {
    response = await fetch(apiUrl(path, query), {
      method,
      headers,
      credentials: "same-origin",
      cache: "no-store",
      ...(body === undefined ? {} : { body: isJson ? JSON.stringify(body) : body }),
      ...(signal ? { signal } : {}),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", UNREACHABLE);
  }
  noteServerTime(response.headers.get("Date"));
  if (response.ok || (response.status === 304 && ifNoneMatch !== undefined)) return response;
  const error = await errorOf(response);
  if (error.status === 401 && !isSignIn) reportSignedOut();
  throw error;
}

/** Send a request; return the JSON of its reply, null if it has none. Raises ApiError. */
export async function request<T>(path: string, options: RequestOptions = {}): Promise<T> {
  const response = await send(path, options);
  const text = await readText(response, options.signal);
  let reply: unknown;
  try {
    reply = text ? JSON.parse(text) : null;
  } catch {
    throw new ApiError(response.status, "not_json", "The answer of the API is not JSON. Is there a proxy that changes answers?");
  }
  if (typeof reply === "object" && reply !== null && "now" in reply) noteServerTime(reply.now);
  return reply as T;
}

async function readText(response: Response, signal: AbortSignal | undefined): Promise<string> {
  try {
    return await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", UNREACHABLE);
  }
}

/** Return why a request failed, from its reply. */
export async function errorOf(response: Response): Promise<ApiError> {
  const after = Number(response.headers.get("Retry-After"));
  const retryAfter = Number.isFinite(after) && after > 0 ? after : null;
  const fallback = `The API answered with status ${response.status}.`;
  try {
    const body: unknown = await response.json();
    const { code, message, details } = (typeof body === "object" && body !== null ? body : {}) as Record<string, unknown>;
    const text = typeof message === "string" && message ? message : fallback;
    return new ApiError(response.status, typeof code === "string" ? code : String(response.status), text, details ?? null, retryAfter);
  } catch {
    return new ApiError(response.status, String(response.status), fallback, null, retryAfter);
  }
}
