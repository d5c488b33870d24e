/** The turns of a conversation, out of its messages and its runs. */
import type { ConversationMessage } from "../api/play";
import type { RunRow } from "../api/replies";
import { isOver } from "../store/run-status";

/** What was said in one run. A turn that another conversation has handed on has no run here. */
export interface Turn {
  key: string;
  runId: string | null;
  run: RunRow | null;
  asked: readonly unknown[];
  answer: ConversationMessage | null;
}

interface GrowingTurn extends Turn {
  asked: unknown[];
}

/**
 * Return the turns in the order in which they ran, queued ones last. `messages` are consecutive ones in their order, `runs` in any order.
 * Runs from before the first message are left out if there are earlier messages.
 */
export function turnsOf(messages: readonly ConversationMessage[], runs: readonly RunRow[], hasEarlier = false): Turn[] {
  const runsById = new Map(runs.map((run) => [run.id, run]));
  const turns: GrowingTurn[] = [];
  for (const message of messages) {
    const last = turns.at(-1);
    const known = message.run_id === null ? (message.role === "user" ? undefined : last) : turns.find((turn) => turn.runId === message.run_id);
    const isContinued = known !== undefined && (message.run_id !== null || (known.runId === null && known.answer === null));
    const turn = isContinued ? known : emptyTurn(message.run_id, message.number, runsById);
    if (!isContinued) turns.push(turn);
    if (message.role === "user") turn.asked.push(message.content);
    else turn.answer = message;
  }
  const shown = new Set(turns.map((turn) => turn.runId));
  const others = runs.filter((run) => !shown.has(run.id)).toSorted((a, b) => (a.created_at < b.created_at ? -1 : 1));
  const start = turns.find((turn) => turn.run !== null)?.run?.created_at;
  for (const run of others) {
    if (hasEarlier && start !== undefined && run.created_at < start) continue;
    const turn = { key: run.id, runId: run.id, run, asked: run.query ? [run.query] : [], answer: null };
    const at = isOver(run.status) ? turns.findIndex((each) => each.run !== null && each.run.created_at > run.created_at) : -1;
    if (at < 0) turns.push(turn);
    else turns.splice(at, 0, turn);
  }
  return turns;
}

function emptyTurn(runId: string | null, number: number, runs: ReadonlyMap<string, RunRow>): GrowingTurn {
  return { key: runId ?? `message ${number}`, runId, run: runId === null ? null : (runs.get(runId) ?? null), asked: [], answer: null };
}

function isActive(turn: Turn): boolean {
  return turn.run !== null && !isOver(turn.run.status);
}

/** Return the turn that runs or waits for someone; null if none does. Those that are queued come after it. */
export function activeTurn(turns: readonly Turn[]): Turn | null {
  return turns.find((turn) => isActive(turn) && turn.run?.status !== "queued") ?? turns.find(isActive) ?? null;
}

/** Return the run to follow: that of the turn that runs, else that of the last one. */
export function latestRun(turns: readonly Turn[]): string | null {
  return activeTurn(turns)?.runId ?? turns.findLast((turn) => turn.runId !== null)?.runId ?? null;
}
