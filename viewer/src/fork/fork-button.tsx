/** A button that opens the dialog of a fork at a step. */
import { lazy, Suspense, useState, type ReactNode } from "react";

import { texts } from "../texts";
import { ErrorBoundary } from "../ui/error-boundary";
import { Button } from "../ui/parts";

const ForkDialog = lazy(() => import("./fork-dialog"));

interface Props {
  label: string;
  /** Null while no step is selected. */
  stepId: string | null;
  /** Why nothing can be forked; null if it can. */
  refusal: string | null;
}

export function ForkButton({ label, stepId, refusal }: Props): ReactNode {
  const [openAt, setOpenAt] = useState<string | null>(null);
  const why = refusal ?? (stepId === null ? texts.fork.noStep : null);
  return (
    <>
      <Button data-action="fork" disabled={why !== null} title={why ?? undefined} onClick={() => setOpenAt(stepId)}>
        {label}
      </Button>
      {openAt === null ? null : (
        <ErrorBoundary>
          <Suspense fallback={null}>
            <ForkDialog stepId={openAt} onClose={() => setOpenAt(null)} />
          </Suspense>
        </ErrorBoundary>
      )}
    </>
  );
}
