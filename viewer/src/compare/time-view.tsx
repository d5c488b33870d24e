/** The times of both runs: a row for each step with two bars, A above B, and the difference. */
import { useCallback, useMemo, type ReactNode } from "react";

import type { RunState } from "../store/run";
import { texts } from "../texts";
import { duration } from "../ui/format";
import { visibleText } from "../ui/visible-text";
import { RowList, type RowProps } from "./row-list";
import { countDifference, durationDifference, tokensOf, tookOf, type ComparedRow } from "./rows";
import { StepName } from "./steps-view";
import { useBothRuns, type LoadedComparison } from "./use-comparison";

const t = texts.compare;
const COLUMNS = "grid grid-cols-[minmax(0,16rem)_minmax(0,1fr)_5.5rem_7rem] items-center gap-x-3 px-3";
const TICKS = [0, 0.25, 0.5, 0.75, 1];

interface Props {
  a: string;
  b: string;
  comparison: LoadedComparison;
  names: ReadonlyMap<string, string>;
  selected: string | null;
  onSelect: (stepId: string) => void;
}

export function TimeView({ a, b, comparison, names, selected, onSelect }: Props): ReactNode {
  const { runs, error } = useBothRuns(a, b);
  const span = useMemo(() => (runs ? Math.max(1, ...runs.map(spanOf)) : 1), [runs]);
  const Cells = useCallback((props: RowProps) => <TimeCells {...props} names={names} runs={runs} span={span} />, [names, runs, span]);
  return (
    <>
      <p className="shrink-0 px-3 py-1 text-ink-2">{error ? visibleText(error.message) : runs ? t.legend : t.timesLoading}</p>
      <RowList
        comparison={comparison}
        selected={selected}
        onSelect={onSelect}
        columns={COLUMNS}
        head={
          <>
            <span role="columnheader">{t.step}</span>
            <span role="columnheader" className="flex justify-between tabular-nums">
              <span className="sr-only">{t.columns.took}</span>
              {TICKS.map((tick) => (
                <span key={tick}>{runs ? duration(tick * span) : ""}</span>
              ))}
            </span>
            <span role="columnheader" className="text-right">
              {t.difference}
            </span>
            <span role="columnheader" className="text-right">
              {t.columns.tokens}
            </span>
          </>
        }
        Cells={Cells}
      />
    </>
  );
}

type Runs = readonly [RunState, RunState];

function startOf({ header }: RunState): number {
  return header?.startedAt ?? header?.createdAt ?? 0;
}

/** Return how long a run has lasted, in milliseconds. */
function spanOf(run: RunState): number {
  let end = run.header?.finishedAt ?? 0;
  for (let row = 0; row < run.steps.count; row++) end = Math.max(end, run.steps.number(row, "endedAt") ?? run.steps.number(row, "finishedAt") ?? 0);
  return Math.max(0, end - startOf(run));
}

function TimeCells({ row, isNarrow, names, runs, span }: RowProps & { names: ReadonlyMap<string, string>; runs: Runs | null; span: number }): ReactNode {
  const time = durationDifference(tookOf(row.a), tookOf(row.b));
  const tokens = countDifference(tokensOf(row.a), tokensOf(row.b));
  const bars = (
    <span role="cell" className={`flex flex-col gap-0.5 ${isNarrow ? "col-span-2" : ""}`}>
      <Bar side="a" row={row} run={runs?.[0] ?? null} span={span} />
      <Bar side="b" row={row} run={runs?.[1] ?? null} span={span} />
      <span className="sr-only">{`A ${duration(tookOf(row.a))}, B ${duration(tookOf(row.b))}`}</span>
    </span>
  );
  const difference = (
    <span role="cell" className="text-right tabular-nums">
      {time ?? (row.a && row.b ? t.reused : row.a ? t.result.only_a : t.result.only_b)}
    </span>
  );
  if (isNarrow) {
    return (
      <>
        <StepName row={row} names={names} />
        {difference}
        {bars}
      </>
    );
  }
  return (
    <>
      <StepName row={row} names={names} />
      {bars}
      {difference}
      <span role="cell" className="text-right tabular-nums">
        {tokens === null || tokens === "±0" ? "" : tokens}
      </span>
    </>
  );
}

/** One bar: waiting is light, work is dark. A step that a fork has reused took no time in it. */
function Bar({ side, row, run, span }: { side: "a" | "b"; row: ComparedRow; run: RunState | null; span: number }): ReactNode {
  const own = row[side];
  const step = own && run ? run.steps.find(own.id) : null;
  const start = run ? startOf(run) : 0;
  const percent = (at: number): number => Math.min(100, Math.max(0, (100 * (at - start)) / span));
  const part = (from: number | null, to: number | null, className: string): ReactNode => {
    if (from === null || to === null) return null;
    const left = percent(from);
    return <span className={`absolute inset-y-0 min-w-px rounded-xs ${className}`} style={{ left: `${left}%`, width: `${Math.max(0, percent(to) - left)}%` }} />;
  };
  const tone = side === "a" ? "violet" : "accent";
  const end = step?.endedAt ?? step?.finishedAt ?? null;
  return (
    <span aria-hidden="true" data-testid="compare-bar" data-side={side} data-tone={tone} className="relative block h-2.5 rounded-xs bg-panel">
      {step && own?.isReused !== true ? (
        <>
          {part(step.createdAt, step.startedAt, "border border-tone bg-tone-soft")}
          {part(step.startedAt, end, "bg-tone")}
        </>
      ) : null}
    </span>
  );
}
