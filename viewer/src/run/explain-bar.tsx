/** One sentence on what became of the run, with the step that is the cause. */
import { useMemo, type ReactNode } from "react";

import { apiUrl } from "../api/base";
import { exportPath } from "../api/runs";
import { explainRun } from "../store/explain";
import { isOver } from "../store/run-status";
import { texts } from "../texts";
import { moment } from "../ui/format";
import { CopyButton } from "../ui/parts";
import { LongText } from "../ui/values";
import { visibleName } from "../ui/visible-text";
import { useNodeNames, useRun, useRunContext, useRunState } from "./use-run";

const t = texts.run;
const ICONS: Readonly<Record<string, string>> = { over: "■", person: "?", budget: "¤", work: "▸", worker: "◔", session: "⋯" };

export function ExplainBar(): ReactNode {
  const state = useRunState();
  const { selectStep } = useRunContext();
  const names = useNodeNames();
  const explanation = useMemo(() => explainRun(state), [state]);
  if (!explanation) return null;
  const { sentence, stepId, tone, handled, waitsFor } = explanation;
  const cause = state.steps.find(stepId ?? undefined);
  const error = state.header?.error ?? null;
  const isLong = error !== null && (error.length > 300 || error.includes("\n"));
  return (
    <section
      aria-label={t.explain}
      data-testid="explain"
      data-waits-for={waitsFor}
      data-tone={tone}
      className="flex shrink-0 flex-wrap items-center gap-x-3 gap-y-1 border-y border-line bg-tone-soft px-3 py-1.5"
    >
      <span aria-hidden="true" className="text-tone">
        {ICONS[waitsFor] ?? "■"}
      </span>
      <p className="min-w-0 flex-1 basis-64 font-medium break-words text-tone">{visibleName(sentence, 600)}</p>
      {handled ? <span className="text-tone">{t.handled(handled)}</span> : null}
      {cause ? (
        <button type="button" onClick={() => selectStep(cause.id)} className="min-h-6 text-tone underline">
          {t.showStep} <bdi>{visibleName(names.get(cause.nodeId) ?? cause.nodeId, 60)}</bdi>
        </button>
      ) : null}
      <Responsible />
      {waitsFor === "nobody" && state.server !== null && state.header ? (
        <a href={apiUrl(exportPath(state.header.id))} download className="min-h-6 text-tone underline">
          {t.report}
        </a>
      ) : null}
      {error ? <CopyButton text={() => error} label={t.copyError} /> : null}
      {isLong ? (
        <details className="basis-full">
          <summary className="min-h-6 cursor-pointer text-tone">{t.wholeError}</summary>
          <div className="max-h-60 overflow-auto" tabIndex={0} role="region" aria-label={t.wholeError}>
            <LongText text={error} />
          </div>
        </details>
      ) : null}
    </section>
  );
}

/** Who must act next, until when, and what else the run waits for; only a server knows. */
function Responsible(): ReactNode {
  const waits = useRun((state) => (isOver(state.header?.status ?? "") ? null : (state.server?.waits ?? null)));
  if (!waits) return null;
  return (
    <>
      {waits.owner === null ? null : <span className="text-tone">{t.who(visibleName(waits.owner, 80))}</span>}
      {waits.until === null ? null : (
        <span className="text-tone">
          {t.until} <time dateTime={new Date(waits.until).toISOString()}>{moment(waits.until)}</time>
        </span>
      )}
      {waits.also.length ? (
        <details className="basis-full">
          <summary className="min-h-6 cursor-pointer text-tone">{t.also(waits.also.length)}</summary>
          <ul className="list-disc pl-5">
            {waits.also.map((sentence, index) => (
              <li key={index}>{visibleName(sentence, 600)}</li>
            ))}
          </ul>
        </details>
      ) : null}
    </>
  );
}
