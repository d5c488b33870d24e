/**
 * The first read of a run, begun when its address is known: before the pages know who reads, and before the code of
 * the page is here. It is taken once; whoever asks later reads anew.
 */
import { readRunAndGraph, type RunAndGraph } from "../api/runs";
import { storedValue } from "../ui/stored-value";

/** Whether someone was signed in when this browser last showed a page: then reads can begin before that is known anew. */
export const hadReader = storedValue("easel.had-reader", (stored) => stored === true);

const begun = new Map<string, Promise<RunAndGraph>>();

/** Begin to read a run; return what is read, null after a failure, which is told to whoever takes the read. */
export function beginFirstRead(runId: string): Promise<RunAndGraph | null> {
  const read = readRunAndGraph(runId, undefined, true);
  begun.set(runId, read);
  return read.catch(() => null);
}

/** Return a run and its graph. Raises ApiError. */
export async function takeFirstRead(runId: string, signal: AbortSignal): Promise<RunAndGraph> {
  const read = begun.get(runId);
  begun.delete(runId);
  try {
    if (read) return await read;
  } catch {
    // it may have been refused because nobody was signed in yet
  }
  return readRunAndGraph(runId, signal);
}
