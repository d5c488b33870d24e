/** The steps of both runs as a table: which are the same, in what the others differ. */
import { useCallback, type ReactNode } from "react";

import type { Look } from "../store/run-status";
import { texts } from "../texts";
import { count, duration } from "../ui/format";
import { StateBadge } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { RowList, type RowProps } from "./row-list";
import { countDifference, durationDifference, resultOf, tokensOf, tookOf, whatText, whereText, type ComparedRow, type Result } from "./rows";
import type { LoadedComparison } from "./use-comparison";

const t = texts.compare;
const COLUMNS = "grid grid-cols-[7rem_minmax(0,1.4fr)_minmax(0,1fr)_4.5rem_4.5rem_5rem_4rem_4rem_4.5rem] items-center gap-x-2 px-3";
const NUMBER = "text-right tabular-nums";

export const RESULT_LOOKS: Readonly<Record<Result, Look>> = {
  same: { word: t.result.same, icon: "=", tone: "green", border: "none" },
  differs: { word: t.result.differs, icon: "≠", tone: "amber", border: "solid" },
  only_a: { word: t.result.only_a, icon: "−", tone: "violet", border: "dashed" },
  only_b: { word: t.result.only_b, icon: "+", tone: "accent", border: "dashed" },
};

interface Props {
  comparison: LoadedComparison;
  names: ReadonlyMap<string, string>;
  selected: string | null;
  onSelect: (stepId: string) => void;
}

export function StepsView({ comparison, names, selected, onSelect }: Props): ReactNode {
  const Cells = useCallback(({ row, isNarrow }: RowProps) => <StepCells row={row} isNarrow={isNarrow} names={names} />, [names]);
  const heads = [t.what, t.step, t.in, `A ${t.columns.took}`, `B ${t.columns.took}`, t.difference, `A ${t.columns.tokens}`, `B ${t.columns.tokens}`, t.difference];
  return (
    <RowList
      comparison={comparison}
      selected={selected}
      onSelect={onSelect}
      columns={COLUMNS}
      head={heads.map((title, place) => (
        <span key={place} role="columnheader" className={`truncate ${place > 2 ? "text-right" : ""}`}>
          {title}
        </span>
      ))}
      Cells={Cells}
    />
  );
}

/** The name of a step with its item, and whether a fork has reused it. */
export function StepName({ row, names }: { row: ComparedRow; names: ReadonlyMap<string, string> }): ReactNode {
  const where = whereText(row, names);
  const isReused = row.a?.isReused || row.b?.isReused;
  return (
    <span role="cell" className="min-w-0 truncate">
      <bdi className="font-medium">{visibleName(names.get(row.nodeId) ?? row.nodeId, 80)}</bdi>
      {where ? <span className="text-ink-2"> · {where}</span> : null}
      {isReused ? <span className="text-ink-2"> · {t.reused}</span> : null}
    </span>
  );
}

function StepCells({ row, isNarrow, names }: RowProps & { names: ReadonlyMap<string, string> }): ReactNode {
  const { a, b } = row;
  const badge = (
    <span role="cell" className={isNarrow ? "justify-self-end" : "min-w-0 overflow-hidden"}>
      <StateBadge look={RESULT_LOOKS[resultOf(row.what)]} />
    </span>
  );
  const differs = (
    <span role="cell" className="min-w-0 truncate text-ink-2">
      {whatText(row.what)}
    </span>
  );
  const [tookA, tookB] = [tookOf(a), tookOf(b)];
  const times = durationDifference(tookA, tookB);
  if (isNarrow) {
    return (
      <>
        <StepName row={row} names={names} />
        {badge}
        {differs}
        <span role="cell" className={NUMBER}>
          {[duration(tookA), duration(tookB)].join(" / ")}
        </span>
      </>
    );
  }
  const numbers = [
    duration(tookA), duration(tookB), times ?? "", count(tokensOf(a)), count(tokensOf(b)), countDifference(tokensOf(a), tokensOf(b)) ?? "",
  ];
  return (
    <>
      {badge}
      <StepName row={row} names={names} />
      {differs}
      {numbers.map((text, place) => (
        <span key={place} role="cell" className={NUMBER}>
          {text}
        </span>
      ))}
    </>
  );
}
