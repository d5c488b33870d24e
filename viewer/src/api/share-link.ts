/**
 * The routes that a share link of an agent opens, with its token in each request: no cookie and nothing stored, since
 * the page may stand in a frame of another site.
 */
import { apiUrl, type Query } from "./base";
import { ApiError, errorOf, UNREACHABLE } from "./request";
import { EventSplitter, type ServerSentEvent } from "./server-sent-events";

const SILENCE_MS = 40_000; // more than two comments that keep the connection

export interface SharedAgent {
  title: string | null;
  avatar: string | null;
  inputs: Readonly<Record<string, unknown>>;
  prologue: string | null;
  mode: string | null;
}

export interface SharedAnswer {
  id: string | null;
  content: string;
  attachment: unknown;
  downloads: readonly unknown[];
  /** The ids of the files that read it aloud; missing from the reply of an older server. */
  audio?: readonly string[];
}

export interface SharedTurn {
  question: unknown;
  answers: readonly SharedAnswer[];
  reference: unknown;
  run_id: string | null;
  status: string | null;
  error: string;
}

export interface SharedSession {
  id: string;
  turns: readonly SharedTurn[];
  is_cut: boolean;
  /** What goes on; its events after the position are those of the last turn. */
  run: { id: string; status: string; after: string } | null;
}

export interface TurnRequest {
  query?: string;
  inputs?: Readonly<Record<string, unknown>>;
  files?: readonly unknown[];
  session_id?: string;
}

export interface EventReader {
  signal: AbortSignal;
  /** The ids of the run and its session, which come before the events. */
  onIds?: (ids: { runId: string; sessionId: string }) => void;
  onEvents: (events: readonly ServerSentEvent[]) => void;
}

interface Sent {
  method?: "GET" | "POST";
  query?: Query;
  body?: unknown;
  accept?: string;
  key?: string;
  signal?: AbortSignal;
}

export class ShareLink {
  constructor(
    readonly agentId: string,
    private readonly token: string,
  ) {}

  async readAgent(): Promise<SharedAgent> {
    return this.data<SharedAgent>(`/agentbots/${this.agentId}/inputs`);
  }

  async readSession(sessionId: string): Promise<SharedSession> {
    return this.data<SharedSession>(`/agentbots/${this.agentId}/sessions/${sessionId}`);
  }

  /** Send a message, or the answers to a form, and read the events of the turn. */
  async complete(turn: TurnRequest, key: string, reader: EventReader): Promise<void> {
    const response = await this.send(`/agentbots/${this.agentId}/completions`, {
      method: "POST",
      body: { ...turn, stream: true },
      accept: "text/event-stream",
      key,
      signal: reader.signal,
    });
    const runId = response.headers.get("X-Run-Id");
    const sessionId = response.headers.get("X-Session-Id");
    if (runId && sessionId) reader.onIds?.({ runId, sessionId });
    await readEvents(response, reader);
  }

  /** Read the events of a run after a position. */
  async follow(runId: string, after: string, reader: EventReader): Promise<void> {
    const path = `/agentbots/${this.agentId}/runs/${runId}/events`;
    await readEvents(await this.send(path, { query: { after }, accept: "text/event-stream", signal: reader.signal }), reader);
  }

  async cancel(runId: string): Promise<void> {
    await this.data(`/agentbots/${this.agentId}/cancel`, { method: "POST", body: { run_id: runId } });
  }

  /** Store a file; return its descriptor. */
  async upload(file: File, key: string): Promise<unknown> {
    const body = new FormData();
    body.append("file", file);
    return this.data(`/agents/${this.agentId}/upload`, { method: "POST", body, key });
  }

  /** Return a file that the agent has made, by the path of its route. */
  async download(path: string): Promise<Blob> {
    return (await this.send(path, { accept: "*/*" })).blob();
  }

  private async data<T>(path: string, options: Sent = {}): Promise<T> {
    const response = await this.send(path, options);
    try {
      return ((await response.json()) as { data: T }).data;
    } catch {
      throw new ApiError(response.status, "not_json", "The answer of the API is not JSON. Is there a proxy that changes answers?");
    }
  }

  private async send(path: string, { method = "GET", query, body, accept = "application/json", key, signal }: Sent): Promise<Response> {
    const headers = new Headers({ Accept: accept, Authorization: `Bearer ${this.token}`, "X-Http-Status": "strict" });
    if (key !== undefined) headers.set("Idempotency-Key", key);
    const isJson = body !== undefined && !(body instanceof FormData);
    if (isJson) headers.set("Content-Type", "application/json");
    let response: Response;
    try {
      response = await fetch(apiUrl(path, query), {
        method,
        headers,
        credentials: "omit",
        cache: "no-store",
        ...(body === undefined ? {} : { body: isJson ? JSON.stringify(body) : (body) }),
        ...(signal ? { signal } : {}),
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError(0, "unreachable", UNREACHABLE);
    }
    if (!response.ok) throw await errorOf(response);
    return response;
  }
}

async function readEvents(response: Response, { signal, onEvents }: EventReader): Promise<void> {
  if (!response.body) throw new ApiError(0, "unreachable", UNREACHABLE);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const splitter = new EventSplitter();
  let timer: ReturnType<typeof setTimeout> | undefined;
  try {
    for (;;) {
      const silence = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new ApiError(0, "silent", UNREACHABLE)), SILENCE_MS);
      });
      const { done, value } = await Promise.race([reader.read(), silence]);
      clearTimeout(timer);
      if (done) return;
      onEvents(splitter.feed(value));
    }
  } catch (error) {
    if (signal.aborted || error instanceof ApiError) throw error;
    throw new ApiError(0, "unreachable", UNREACHABLE);
  } finally {
    clearTimeout(timer);
    void reader.cancel().catch(() => undefined); // it may have failed already
  }
}
