/** Both runs and their difference: status, time, tokens, cost, steps, versions, and where they first differ. */
import { Link } from "@tanstack/react-router";
import { lazy, Suspense, useState, type ReactNode } from "react";

import type { ComparedRun, Comparison, VersionDifferences } from "../api/copies";
import { shortId } from "../run/origin";
import { usageOf } from "../run-file/rows";
import { runLook } from "../store/run-status";
import { texts } from "../texts";
import { ErrorBoundary } from "../ui/error-boundary";
import { count, duration, moment, money } from "../ui/format";
import { Button, StateBadge } from "../ui/parts";
import { visibleName, visibleText } from "../ui/visible-text";
import { costDifference, countDifference, durationDifference } from "./rows";
import { VersionChanges } from "./version-changes";

const RunPicker = lazy(() => import("./run-picker"));
const t = texts.compare;

interface Props {
  head: Comparison;
  onRuns: (a: string, b: string) => void;
  onStep: (stepId: string) => void;
  onReload: () => void;
}

export function Summary({ head, onRuns, onStep, onReload }: Props): ReactNode {
  const { a, b } = head;
  const isOver = [a, b].every((run) => run.finished_at !== null);
  return (
    <div className="shrink-0 border-b border-line">
      <div className="flex flex-wrap items-center gap-2 px-3 pt-2">
        <Button onClick={() => onRuns(b.id, a.id)}>{t.swap}</Button>
        <Button onClick={onReload}>{t.reload}</Button>
        {isOver ? null : (
          <span data-tone="amber" className="text-tone">
            {t.notOver}
          </span>
        )}
      </div>
      <Figures a={a} b={b} onRuns={onRuns} />
      <Divergence head={head} onStep={onStep} />
      {head.versions ? <Versions versions={head.versions} /> : null}
    </div>
  );
}

function Figures({ a, b, onRuns }: { a: ComparedRun; b: ComparedRun; onRuns: Props["onRuns"] }): ReactNode {
  const [usageA, usageB] = [usageOf(a.usage), usageOf(b.usage)];
  const [tokensA, tokensB] = [usageA, usageB].map((usage) => usage.promptTokens + usage.completionTokens);
  const heads = Object.entries(t.columns);
  return (
    <div role="region" aria-label={t.summary} tabIndex={0} className="overflow-x-auto px-3 py-1">
      <table className="w-full max-w-5xl text-left tabular-nums">
        <thead className="text-ink-2">
          <tr>
            {heads.map(([name, title]) => (
              <th key={name} scope="col" className="pr-3 font-normal whitespace-nowrap">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <RunLine side="A" run={a} other={b} onPick={(id) => onRuns(id, b.id)} />
          <RunLine side="B" run={b} other={a} onPick={(id) => onRuns(a.id, id)} />
          <tr data-testid="compare-difference" className="border-t border-line">
            <th scope="row" className="pr-3 font-normal text-ink-2">
              {t.difference}
            </th>
            <td className="pr-3">{a.status === b.status ? t.result.same : `${runLook(a.status).word} → ${runLook(b.status).word}`}</td>
            <td className="pr-3">{durationDifference(a.elapsed_ms, b.elapsed_ms) ?? "–"}</td>
            <td className="pr-3">{countDifference(tokensA ?? 0, tokensB ?? 0)}</td>
            <td className="pr-3">{costDifference(usageA.cost, usageB.cost) ?? "–"}</td>
            <td>{countDifference(a.steps, b.steps)}</td>
          </tr>
        </tbody>
      </table>
    </div>
  );
}

function RunLine({ side, run, other, onPick }: { side: "A" | "B"; run: ComparedRun; other: ComparedRun; onPick: (runId: string) => void }): ReactNode {
  const [isOpen, setOpen] = useState(false);
  const usage = usageOf(run.usage);
  const origin = originOf(run);
  const choose = side === "A" ? t.pickA : t.pickB;
  return (
    <tr data-testid="compared-run" data-side={side.toLowerCase()} data-run-id={run.id} data-status={run.status} className="border-t border-line">
      <th scope="row" className="max-w-96 py-0.5 pr-3 font-normal">
        <span className="flex flex-wrap items-center gap-x-2">
          <span className="font-semibold">{side}</span>
          <Link to="/runs/$runId" params={{ runId: run.id }} search={{}} title={run.id} className="inline-block min-h-6 font-mono text-xs leading-6 text-accent underline">
            {shortId(run.id)}
          </Link>
          <time dateTime={run.created_at} className="text-ink-2">
            {moment(Date.parse(run.created_at))}
          </time>
          <Button onClick={() => setOpen(true)}>{t.choose(side)}</Button>
        </span>
        <bdi className="block max-w-96 truncate" title={visibleName(run.query, 200)}>
          {visibleName(run.query, 200)}
        </bdi>
        {isOpen ? (
          <ErrorBoundary>
            <Suspense fallback={null}>
              <RunPicker
                title={choose}
                runId={other.id}
                agentId={other.agent_id ?? ""}
                originId={originOf(other)}
                onPick={(id) => {
                  setOpen(false);
                  onPick(id);
                }}
                onClose={() => setOpen(false)}
              />
            </Suspense>
          </ErrorBoundary>
        ) : null}
      </th>
      <td className="pr-3">
        <StateBadge look={runLook(run.status)} />
        {origin === null ? null : <span className="ml-1 text-ink-2" title={origin}>{run.origin?.kind === "fork" ? "⑂" : "↻"}</span>}
      </td>
      <td className="pr-3">{duration(run.elapsed_ms)}</td>
      <td className="pr-3">{count(usage.promptTokens + usage.completionTokens)}</td>
      <td className="pr-3">{[money(usage.cost), usage.unpricedCalls ? texts.run.unpriced(usage.unpricedCalls) : null].filter(Boolean).join(" + ") || "–"}</td>
      <td>{count(run.steps)}</td>
    </tr>
  );
}

function originOf(run: ComparedRun): string | null {
  return typeof run.origin?.run_id === "string" ? run.origin.run_id : null;
}

function Divergence({ head, onStep }: Pick<Props, "head" | "onStep">): ReactNode {
  const first = head.first_divergence;
  if (!first) {
    return (
      <p data-testid="first-divergence" data-tone="green" className="px-3 pb-2 text-tone">
        <span aria-hidden="true">✓ </span>
        {head.same ? t.same : t.sameSteps}
      </p>
    );
  }
  const step = first.a_id ?? first.b_id;
  return (
    <p data-testid="first-divergence" data-node-id={first.node_id} data-what={first.what} className="px-3 pb-2 [overflow-wrap:anywhere]">
      <span className="font-medium">{t.first}</span> {visibleText(first.sentence)}{" "}
      {step === null ? null : (
        <button type="button" className="min-h-6 text-accent underline" onClick={() => onStep(step)}>
          {t.showFirst}
        </button>
      )}
    </p>
  );
}

function Versions({ versions }: { versions: VersionDifferences }): ReactNode {
  if (versions.unavailable !== null) return <p className="px-3 pb-2 text-ink-2">{t.versionsUnavailable(visibleName(versions.unavailable, 300))}</p>;
  if (versions.same) return <p className="px-3 pb-2 text-ink-2">{t.versionsSame}</p>;
  const { changed, only_a: onlyA, only_b: onlyB } = versions;
  return (
    <details data-testid="version-differences" className="px-3 pb-2">
      <summary className="min-h-6 cursor-pointer font-medium">{t.versions(changed?.length ?? 0, onlyA?.length ?? 0, onlyB?.length ?? 0)}</summary>
      <VersionChanges versions={versions} />
    </details>
  );
}
