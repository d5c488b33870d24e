/** The live stream of a run: `GET /runs/{id}/live`, read with fetch, so that its status is seen and it can be ended. */
import { ApiError, send } from "./request";
import { EventSplitter, type ServerSentEvent } from "./server-sent-events";

const FIRST_BYTE_MS = 8_000; // without one, a proxy holds the stream back
const SILENCE_MS = 40_000; // more than two heartbeats

export interface LiveStreamOptions {
  /** The last position and revision that the reader has. */
  after: string;
  revision: number;
  signal: AbortSignal;
  onEvents: (events: readonly ServerSentEvent[]) => void;
}

/** Read a live stream to its end. Raises ApiError if it is refused, breaks, or gives no byte for too long. */
export async function readLiveStream(runId: string, { after, revision, signal, onEvents }: LiveStreamOptions): Promise<void> {
  const own = new AbortController();
  const abort = (): void => own.abort();
  signal.addEventListener("abort", abort);
  let reason: ApiError | null = null;
  const silent = (code: string, message: string) => (): void => {
    reason = new ApiError(0, code, message);
    own.abort();
  };
  let timer = setTimeout(silent("no_first_byte", "The live stream has sent nothing: does a proxy hold it back?"), FIRST_BYTE_MS);
  try {
    const query = { after: after === "0" ? undefined : after, rev: revision || undefined };
    const response = await send(`/runs/${runId}/live`, { query, accept: "text/event-stream", signal: own.signal });
    if (!response.body) throw new ApiError(0, "unreachable", "The live stream has no body.");
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const splitter = new EventSplitter();
    for (;;) {
      const { done, value } = await readChunk(reader);
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(silent("silent", "The live stream has been silent for too long."), SILENCE_MS);
      onEvents(splitter.feed(value));
    }
  } catch (error) {
    throw reason ?? error;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", abort);
    own.abort();
  }
}

async function readChunk(reader: ReadableStreamDefaultReader<string>): Promise<ReadableStreamReadResult<string>> {
  try {
    return await reader.read();
  } catch {
    throw new ApiError(0, "unreachable", "The live stream broke off.");
  }
}
