/** Forking the run of a turn: it is read first if it is not the one that is followed. */
import { lazy, Suspense, useCallback, useMemo, useState, useSyncExternalStore, type ReactNode } from "react";

import { RunProvider } from "../run/run-provider";
import type { RunSearch } from "../run/run-search";
import { useOpenRun, type OpenRun } from "../run/use-open-run";
import type { RunState } from "../store/run";
import { texts } from "../texts";
import { ErrorBoundary } from "../ui/error-boundary";
import { visibleName } from "../ui/visible-text";
import { runActions } from "./run-actions";

const ForkDialog = lazy(() => import("../fork/fork-dialog"));
const t = texts.play;
const NO_SEARCH: RunSearch = {};

interface Props {
  runId: string;
  agentId: string;
  open: OpenRun | null;
  /** The step that has written the answer, if it is known. */
  answerStep: string | null;
  /** Why nothing can be forked; null if it can. */
  refusal: string | null;
  className: string;
}

export function TurnFork({ runId, agentId, open, answerStep, refusal, className }: Props): ReactNode {
  const [isAsked, setAsked] = useState(false);
  const own = useOpenRun(isAsked && open === null ? runId : null);
  const run = open ?? own;
  const close = useCallback(() => setAsked(false), []);
  return (
    <>
      <button type="button" data-action="fork" disabled={refusal !== null} title={refusal ?? undefined} aria-expanded={isAsked} onClick={() => setAsked(true)} className={className}>
        {texts.fork.button}
      </button>
      {isAsked && run ? <LoadedFork run={run} agentId={agentId} answerStep={answerStep} onClose={close} /> : null}
    </>
  );
}

function LoadedFork({ run, agentId, answerStep, onClose }: { run: OpenRun; agentId: string; answerStep: string | null; onClose: () => void }): ReactNode {
  const { error } = useSyncExternalStore(run.live.subscribe, run.live.getStatus);
  const point = useSyncExternalStore(run.store.subscribe, () => forkPoint(run.store.getState(), answerStep));
  const actions = useMemo(() => runActions(run, agentId, () => undefined), [run, agentId]);
  const ignore = useCallback(() => undefined, []);
  if (point === null) {
    return (
      <span role="status" className={error ? "text-red" : ""}>
        {error ? visibleName(error.message, 200) : t.loading}
      </span>
    );
  }
  return (
    <ErrorBoundary>
      <Suspense fallback={null}>
        <RunProvider store={run.store} contents={run.contents} actions={actions} search={NO_SEARCH} onSearch={ignore} onStep={ignore}>
          <ForkDialog stepId={point} onClose={onClose} />
        </RunProvider>
      </Suspense>
    </ErrorBoundary>
  );
}

/** Return the step at which a fork begins unless its reader chooses another: what has failed, else what has written the answer. */
export function forkPoint({ steps, streams, header }: Pick<RunState, "steps" | "streams" | "header">, answerStep: string | null): string | null {
  const inOrder = steps.inOrder();
  const failed = header?.status === "failed" ? inOrder.findLast((row) => steps.text(row, "outcome") === "Failed") : undefined;
  if (failed !== undefined) return steps.id(failed);
  const writers = [answerStep, streams.at(-1)?.stepId ?? null];
  const known = writers.find((id) => id !== null && steps.rowOf(id) !== null);
  const last = inOrder.at(-1);
  return known ?? (last === undefined ? null : steps.id(last));
}
