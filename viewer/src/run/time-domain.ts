/** The part of a run that Time shows, and how it is changed. */
import type { RunState } from "../store/run";
import type { Domain } from "./bars";
import { numbersOf } from "./run-search";

const LEAST_MS = 0.5;

export function runStart(state: RunState): number {
  return state.header?.startedAt ?? state.header?.createdAt ?? 0;
}

/** Return the whole run, from its start to its end or to now. */
export function wholeDomain(state: RunState): Domain {
  const start = runStart(state);
  let last = state.header?.finishedAt ?? state.now;
  for (let row = 0; row < state.steps.count; row++) last = Math.max(last, state.steps.number(row, "finishedAt") ?? 0);
  return { from: 0, to: Math.max(1, last - start) };
}

/** Return the part that the address names; null for the whole run. */
export function domainOf(parameter: string | undefined, whole: Domain): Domain | null {
  const [from, to] = numbersOf(parameter);
  return from === undefined || to === undefined ? null : within({ from, to }, whole);
}

export function domainParameter(domain: Domain | null): string | undefined {
  return domain ? `${Number(domain.from.toFixed(2))},${Number(domain.to.toFixed(2))}` : undefined;
}

/** Return a part of the run that is so many times as long, around a point between 0 and 1. */
export function zoomedBy(domain: Domain, whole: Domain, factor: number, point: number): Domain | null {
  const length = Math.max(LEAST_MS, (domain.to - domain.from) * factor);
  const centre = domain.from + (domain.to - domain.from) * point;
  return within({ from: centre - length * point, to: centre - length * point + length }, whole);
}

/** Return a part moved into the run; null if it is all of it. */
export function within({ from, to }: Domain, whole: Domain): Domain | null {
  const length = Math.max(LEAST_MS, to - from);
  if (length >= whole.to - whole.from) return null;
  const first = Math.max(whole.from, Math.min(whole.to - length, from));
  return { from: first, to: first + length };
}
