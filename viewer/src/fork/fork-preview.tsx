/** What a fork would do: steps reused and run again, what they have used, side effects to confirm. */
import type { ReactNode } from "react";

import type { ForkPreview } from "../api/copies";
import { useNodeNames } from "../run/use-run";
import { amountsText } from "../rerun/amounts";
import { texts } from "../texts";
import { Empty } from "../ui/parts";
import { visibleName, visibleText } from "../ui/visible-text";
import type { Preview } from "./use-preview";

const t = texts.fork;
const MOST_NODES = 100;

interface Props {
  preview: Preview;
  confirmed: ReadonlySet<string>;
  onConfirm: (nodeId: string, isConfirmed: boolean) => void;
}

export function PreviewPane({ preview: { data, error, isCurrent }, confirmed, onConfirm }: Props): ReactNode {
  const names = useNodeNames();
  if (error !== null) {
    return (
      <p role="alert" className="break-words text-red">
        {visibleText(error)}
      </p>
    );
  }
  if (!data) return <Empty>{t.computing}</Empty>;
  const nameOf = (nodeId: string): string => visibleName(names.get(nodeId) ?? nodeId, 60);
  const again = data.runs_again.reduce((sum, node) => sum + node.count, 0);
  const { tokens, cost, unpriced_calls: unpricedCalls, ms } = data.estimate;
  return (
    <div aria-busy={!isCurrent} data-testid="fork-preview" data-current={isCurrent ? "1" : "0"} className={`flex flex-col gap-2 ${isCurrent ? "" : "opacity-60"}`}>
      <p data-testid="fork-reused" data-count={data.reused}>
        {t.reused(data.reused)}
      </p>
      <p>{t.runsAgain(again)}</p>
      <ul className="max-h-60 overflow-auto rounded border border-line" tabIndex={0} aria-label={t.runsAgain(again)}>
        {data.runs_again.slice(0, MOST_NODES).map((node) => (
          <Again key={node.node_id} node={node} />
        ))}
        {data.runs_again.length > MOST_NODES ? <li className="px-2 text-ink-2">{texts.copies.more(data.runs_again.length - MOST_NODES)}</li> : null}
      </ul>
      {data.may_run.length ? <p className="text-ink-2">{t.mayRun(data.may_run.slice(0, MOST_NODES).map(nameOf).join(", "))}</p> : null}
      <p className="rounded bg-panel px-2 py-1">
        <span className="font-medium">{texts.copies.estimate}:</span> {t.estimate(amountsText({ tokens, cost, unpricedCalls, ms }))}
      </p>
      {data.confirm.length ? (
        <fieldset data-tone="amber" data-border="solid" className="rounded bg-tone-soft p-2">
          <legend className="px-1 font-semibold text-tone">{t.confirmTitle}</legend>
          <p className="mb-1">{t.confirmText}</p>
          {data.confirm.map((nodeId) => {
            const effect = data.runs_again.find((node) => node.node_id === nodeId)?.effect ?? "";
            return (
              <label key={nodeId} className="flex min-h-6 items-center gap-1.5">
                <input type="checkbox" className="size-4 shrink-0" checked={confirmed.has(nodeId)} onChange={(event) => onConfirm(nodeId, event.target.checked)} />
                <span className="min-w-0">
                  <bdi>{t.confirm(nameOf(nodeId))}</bdi>
                  {t.effects[effect] ? <span> ({t.effects[effect]})</span> : null}
                </span>
              </label>
            );
          })}
        </fieldset>
      ) : null}
    </div>
  );
}

function Again({ node }: { node: ForkPreview["runs_again"][number] }): ReactNode {
  const amounts = amountsText({ tokens: node.tokens, cost: node.cost, unpricedCalls: node.unpriced_calls, ms: node.ms });
  return (
    <li data-testid="fork-again" data-node-id={node.node_id} data-count={node.count} className="flex flex-wrap gap-x-2 border-b border-line px-2 py-0.5 last:border-b-0">
      <span className="min-w-32 flex-1 truncate">
        <bdi>{visibleName(node.name, 60)}</bdi>
        {node.count > 1 ? <span className="text-ink-2"> × {node.count.toLocaleString("en")}</span> : null}
      </span>
      <span className="text-ink-2 tabular-nums">{amounts}</span>
    </li>
  );
}
