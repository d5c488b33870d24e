/** The buttons of a run's header that repeat it or compare it with another. */
import type { ReactNode } from "react";

import { CompareButton } from "../compare/compare-button";
import { ForkButton } from "../fork/fork-button";
import { RerunMenu } from "../rerun/rerun-menu";
import { texts } from "../texts";
import { useRun, useRunContext } from "./use-run";

/** Return why the reader cannot rerun or fork the run now; null for what is possible. */
export function useCopyRefusal(verb: "rerun" | "fork"): string | null {
  const isAllowed = useRun((state) => state.server?.may[verb] ?? false);
  return isAllowed ? null : texts.copies.notAllowed;
}

export function CopyActions({ runId, isAway }: { runId: string; isAway: boolean }): ReactNode {
  const { selectedStep } = useRunContext();
  const isKnown = useRun((state) => selectedStep !== null && state.steps.rowOf(selectedStep) !== null);
  const agentId = useRun((state) => state.header?.agentId ?? "");
  const originId = useRun((state) => state.header?.origin?.runId ?? null);
  const [rerun, fork] = [useCopyRefusal("rerun"), useCopyRefusal("fork")];
  const away = isAway ? texts.copies.away : null;
  return (
    <>
      <RerunMenu runId={runId} refusal={away ?? rerun} />
      <ForkButton label={texts.fork.button} stepId={isKnown ? selectedStep : null} refusal={away ?? fork} />
      <CompareButton runId={runId} agentId={agentId} originId={originId} />
    </>
  );
}

/** Forks the run at the step of the inspector. */
export function ForkFromHere({ stepId }: { stepId: string }): ReactNode {
  const { actions } = useRunContext();
  const refusal = useCopyRefusal("fork");
  return actions ? <ForkButton label={texts.fork.fromHere} stepId={stepId} refusal={refusal} /> : null;
}
