/** Both runs and their difference: status, time, tokens, cost, steps, versions, and where they first differ. */
import { Link } from "@tanstack/react-router";
import { lazy, Suspense, useState, type ReactNode } from "react";

import type { ComparedRun, Comparison, VersionDifferences } from "../api/copies";
import { shortId } from "../run/origin-texts";
import { usageOf } from "../run-file/rows";
import { runLook } from "../store/run-status";
import { texts } from "../texts";
import { CopyMark } from "../ui/copy-mark";
import { ErrorBoundary } from "../ui/error-boundary";
import { count, duration, moment, money } from "../ui/format";
import { Button, StateBadge } from "../ui/parts";
import { useNarrow } from "../ui/use-width";
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

interface FiguresOf {
  status: ReactNode;
  took: string;
  tokens: string;
  cost: string;
  steps: string;
}

function Figures({ a, b, onRuns }: { a: ComparedRun; b: ComparedRun; onRuns: Props["onRuns"] }): ReactNode {
  const isNarrow = useNarrow(800);
  const first = <RunName side="A" run={a} other={b} onPick={(id) => onRuns(id, b.id)} />;
  const second = <RunName side="B" run={b} other={a} onPick={(id) => onRuns(a.id, id)} />;
  const lines = [
    { name: first, figures: figuresOf(a), data: dataOf(a, "a") },
    { name: second, figures: figuresOf(b), data: dataOf(b, "b") },
    { name: <span className="text-ink-2">{t.difference}</span>, figures: differenceOf(a, b), data: { "data-testid": "compare-difference" } },
  ];
  if (isNarrow) {
    return (
      <ul aria-label={t.summary} className="px-3 py-1">
        {lines.map(({ name, figures, data }, place) => (
          <li key={place} {...data} className="border-b border-line py-1">
            {name}
            <span className="flex flex-wrap items-center gap-x-2 tabular-nums">
              {figures.status} <span>{[figures.took, t.tokens(figures.tokens), figures.cost === "–" ? "" : figures.cost, t.steps(figures.steps)].filter(Boolean).join(" · ")}</span>
            </span>
          </li>
        ))}
      </ul>
    );
  }
  return (
    <table aria-label={t.summary} className="mx-3 my-1 w-[calc(100%-1.5rem)] max-w-6xl text-left tabular-nums">
      <thead className="text-ink-2">
        <tr>
          {Object.entries(t.columns).map(([name, title]) => (
            <th key={name} scope="col" className="pr-4 font-normal whitespace-nowrap">
              {title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {lines.map(({ name, figures, data }, place) => (
          <tr key={place} {...data} className="border-t border-line">
            <th scope="row" className="w-full max-w-0 py-0.5 pr-4 font-normal">
              {name}
            </th>
            {Object.entries(figures).map(([column, shown]: [string, ReactNode]) => (
              <td key={column} className="pr-4 whitespace-nowrap">
                {shown}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function dataOf(run: ComparedRun, side: "a" | "b"): Readonly<Record<`data-${string}`, string>> {
  return { "data-testid": "compared-run", "data-side": side, "data-run-id": run.id, "data-status": run.status };
}

function figuresOf(run: ComparedRun): FiguresOf {
  const usage = usageOf(run.usage);
  const unpriced = usage.unpricedCalls ? texts.run.unpriced(usage.unpricedCalls) : null;
  return {
    status: <StateBadge look={runLook(run.status)} />,
    took: duration(run.elapsed_ms),
    tokens: count(usage.promptTokens + usage.completionTokens),
    cost: [money(usage.cost), unpriced].filter(Boolean).join(" + ") || "–",
    steps: count(run.steps),
  };
}

function differenceOf(a: ComparedRun, b: ComparedRun): FiguresOf {
  const [usageA, usageB] = [usageOf(a.usage), usageOf(b.usage)];
  const tokens = countDifference(usageA.promptTokens + usageA.completionTokens, usageB.promptTokens + usageB.completionTokens);
  return {
    status: a.status === b.status ? t.result.same : `${runLook(a.status).word} → ${runLook(b.status).word}`,
    took: durationDifference(a.elapsed_ms, b.elapsed_ms) ?? "–",
    tokens: tokens ?? "–",
    cost: costDifference(usageA.cost, usageB.cost) ?? "–",
    steps: countDifference(a.steps, b.steps) ?? "–",
  };
}

/** One of the runs, with a button that chooses another in its place. */
function RunName({ side, run, other, onPick }: { side: "A" | "B"; run: ComparedRun; other: ComparedRun; onPick: (runId: string) => void }): ReactNode {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <span className="flex flex-wrap items-center gap-x-2">
        <span className="font-semibold">{side}</span>
        <Link to="/runs/$runId" params={{ runId: run.id }} search={{}} title={run.id} className="inline-block min-h-6 font-mono text-xs leading-6 text-accent underline">
          {shortId(run.id)}
        </Link>
        {run.origin ? <CopyMark kind={String(run.origin.kind)} /> : null}
        <time dateTime={run.created_at} className="text-ink-2">
          {moment(Date.parse(run.created_at))}
        </time>
        <Button onClick={() => setOpen(true)}>{t.choose(side)}</Button>
      </span>
      <bdi className="block truncate" title={visibleName(run.query, 200)}>
        {visibleName(run.query, 200)}
      </bdi>
      {isOpen ? (
        <ErrorBoundary>
          <Suspense fallback={null}>
            <RunPicker
              title={side === "A" ? t.pickA : t.pickB}
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
    </>
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
