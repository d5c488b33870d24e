/** What a step reads: each reference with a link to the step that wrote its value. */
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { texts } from "../texts";
import { visibleName } from "../ui/visible-text";
import type { StepDetails } from "./contents";
import { useNodeNames, useRun, useRunContext } from "./use-run";

const t = texts.inspector;

/** Return what is said about a step; null while it is loaded, and where nobody says it. */
export function useStepDetails(stepId: string): StepDetails | null {
  const { contents } = useRunContext();
  const id = useRun((state) => state.header?.id ?? "");
  const status = useRun((state) => state.steps.find(stepId)?.status ?? "");
  const { data } = useQuery({
    queryKey: ["run", id, "step", stepId, status],
    queryFn: async () => (await contents.stepDetails?.(stepId)) ?? null,
    enabled: contents.stepDetails !== undefined,
  });
  return data ?? null;
}

export function Reads({ stepId }: { stepId: string }): ReactNode {
  const details = useStepDetails(stepId);
  const names = useNodeNames();
  const { onSearch } = useRunContext();
  const reads = details?.reads ?? [];
  if (!reads.length) return null;
  return (
    <section className="mt-2">
      <h3 className="font-semibold">{t.reads}</h3>
      <ul data-testid="reads">
        {reads.map((read) => (
          <li key={read.reference} className="flex flex-wrap items-baseline gap-x-2">
            <code className="font-mono text-xs break-all">
              <bdi>{visibleName(read.reference, 120)}</bdi>
            </code>
            {read.stepId === null ? (
              <span className="text-ink-2">{read.isMissing ? t.missing : read.nodeId === null ? t.global : visibleName(read.nodeId, 60)}</span>
            ) : (
              <button
                type="button"
                data-reads={read.stepId}
                className="min-h-6 text-left text-accent underline"
                onClick={() => onSearch({ step: read.stepId ?? undefined, tab: "output" })}
              >
                {t.writtenBy} <bdi>{visibleName(names.get(read.nodeId ?? "") ?? read.nodeId ?? "", 60)}</bdi>
              </button>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
