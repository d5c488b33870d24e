/** What of a deployment does not work. */
import type { SystemState } from "../api/replies";

/** Return how many things do not work; what is not known is none. */
export function problemsOf({ checks, queues, sweeper }: Pick<SystemState, "checks" | "queues" | "sweeper">): number {
  const failedChecks = Object.values(checks).filter((result) => result !== "ok").length;
  const stopped = queues.filter((queue) => queue.is_moving === false).length;
  return failedChecks + stopped + (sweeper?.is_running === false ? 1 : 0);
}
