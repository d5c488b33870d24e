/** A button that chooses a run and leads to the comparison with it. */
import { useNavigate } from "@tanstack/react-router";
import { lazy, Suspense, useState, type ReactNode } from "react";

import { texts } from "../texts";
import { ErrorBoundary } from "../ui/error-boundary";
import { Button } from "../ui/parts";

const RunPicker = lazy(() => import("./run-picker"));
const t = texts.compare;

interface Props {
  runId: string;
  agentId: string;
  /** The run that this one repeats; it becomes A, as the older one. */
  originId: string | null;
}

export function CompareButton({ runId, agentId, originId }: Props): ReactNode {
  const navigate = useNavigate();
  const [isOpen, setOpen] = useState(false);
  const pick = (other: string): void => {
    const [a, b] = other === originId ? [other, runId] : [runId, other];
    void navigate({ to: "/compare/$a/$b", params: { a, b }, search: {} });
  };
  return (
    <>
      <Button data-action="compare" onClick={() => setOpen(true)}>
        {t.button}
      </Button>
      {isOpen ? (
        <ErrorBoundary>
          <Suspense fallback={null}>
            <RunPicker title={t.pickTitle} runId={runId} agentId={agentId} originId={originId} onPick={pick} onClose={() => setOpen(false)} />
          </Suspense>
        </ErrorBoundary>
      ) : null}
    </>
  );
}
