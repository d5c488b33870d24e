/** The header of a run: status, agent, times, usage and cost, where it comes from. */
import type { ReactNode } from "react";

import type { RunBudget, RunHeader as Header } from "../store/run";
import { isOver, runLook } from "../store/run-status";
import { texts } from "../texts";
import { count, duration, moment, money } from "../ui/format";
import { CopyButton, StateBadge } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { Origin } from "./origin";
import { useRun } from "./use-run";

const t = texts.run;

export function RunHeader({ children }: { children?: ReactNode }): ReactNode {
  const header = useRun((state) => state.header);
  const now = useRun((state) => state.now);
  const steps = useRun((state) => (state.rows.isPartial ? Math.max(state.rows.total, state.steps.count) : state.steps.count));
  const isLive = useRun((state) => state.server !== null);
  if (!header) return null;
  const began = header.startedAt ?? header.createdAt;
  const end = header.finishedAt ?? now;
  const took = began === null ? null : Math.max(0, end - began);
  return (
    <header data-testid="run-header" data-run-id={header.id} data-status={header.status} className="shrink-0 px-3 py-2">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <StateBadge look={runLook(header.status)} {...(took === null ? {} : { extra: duration(took) })} />
        <h1 className="min-w-0 truncate text-base font-semibold">
          <bdi>{visibleName(header.agentTitle ?? `${t.agent} ${header.agentId}`, 120)}</bdi>
        </h1>
        <span className="flex items-center font-mono text-xs text-ink-2">
          {visibleName(header.id, 80)}
          <CopyButton text={() => header.id} label={t.copyId} />
        </span>
        {children ? <div className="ml-auto flex flex-wrap items-center gap-2">{children}</div> : null}
      </div>
      {header.origin ? <Origin origin={header.origin} runId={header.id} hasLinks={isLive} /> : null}
      <dl className="flex flex-wrap gap-x-4 gap-y-0.5 text-ink-2 [&_dd]:inline [&_dt]:mr-1 [&_dt]:inline">
        {began === null ? null : (
          <Fact name={t.started}>
            <time dateTime={new Date(began).toISOString()}>{moment(began)}</time>
          </Fact>
        )}
        {isOver(header.status) || isLive ? null : (
          <Fact name={t.asOf}>
            <time dateTime={new Date(now).toISOString()}>{moment(now)}</time>
          </Fact>
        )}
        <Fact name="">{t.steps(steps)}</Fact>
        <UsageFacts header={header} />
        {header.versionTitle || header.versionNumber !== null ? (
          <Fact name={t.version}>
            {[header.versionNumber, header.versionTitle && visibleName(header.versionTitle, 40)].filter((each) => each !== null && each !== "").join(" · ")}
            {differsFromDraft(header) ? (
              <span data-testid="draft-differs" data-tone="amber" data-border="solid" className="ml-1 rounded bg-tone-soft px-1 text-tone" title={t.draftDiffersTitle}>
                {t.draftDiffers}
              </span>
            ) : null}
          </Fact>
        ) : null}
      </dl>
      <Budgets />
      {header.query ? (
        <p className="truncate text-ink-2" title={visibleName(header.query, 2000)}>
          {t.query}: <bdi className="text-ink">{visibleName(header.query, 300)}</bdi>
        </p>
      ) : null}
    </header>
  );
}

function differsFromDraft({ versionDigest, draftDigest }: Header): boolean {
  return versionDigest !== null && draftDigest !== null && versionDigest !== draftDigest;
}

/** What the run may spend, and how much of it is spent and reserved. */
function Budgets(): ReactNode {
  const budgets = useRun((state) => state.server?.budgets ?? NO_BUDGETS);
  if (!budgets.length) return null;
  return (
    <ul aria-label={t.budgets} className="flex flex-wrap gap-x-4">
      {budgets.slice(0, MOST_BUDGETS).map((each) => {
        const unit = each.currency ?? each.measure;
        const [limit, spent, reserved] = [Number(each.limit), Number(each.spent), Number(each.reserved)];
        const part = (amount: number): string => `${Math.min(100, limit > 0 ? (100 * amount) / limit : 100)}%`;
        return (
          <li key={`${each.scope} ${unit}`} data-tone={spent + reserved >= limit ? "red" : "accent"} className="flex items-center gap-2">
            <span aria-hidden="true" className="relative inline-block h-2 w-24 overflow-hidden rounded border border-line-strong bg-surface">
              <span className="absolute inset-y-0 left-0 bg-tone opacity-40" style={{ width: part(spent + reserved) }} />
              <span className="absolute inset-y-0 left-0 bg-tone" style={{ width: part(spent) }} />
            </span>
            {t.budget(each.scope, each.spent, each.limit, unit, reserved > 0 ? each.reserved : null)}
          </li>
        );
      })}
    </ul>
  );
}

const NO_BUDGETS: readonly RunBudget[] = [];
const MOST_BUDGETS = 6;

function UsageFacts({ header: { usage } }: { header: Header }): ReactNode {
  if (!usage.calls && !usage.promptTokens) return null;
  const cached = usage.cachedTokens ? ` (${count(usage.cachedTokens)} cached)` : "";
  const cost = money(usage.cost);
  const unpriced = usage.unpricedCalls ? t.unpriced(usage.unpricedCalls) : null;
  return (
    <>
      <Fact name="">{t.calls(usage.calls)}</Fact>
      <Fact name={t.tokens}>{`${count(usage.promptTokens)}${cached} → ${count(usage.completionTokens)}`}</Fact>
      {cost || unpriced ? <Fact name={t.cost}>{[cost, unpriced].filter(Boolean).join(" + ")}</Fact> : null}
    </>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }): ReactNode {
  return (
    <div>
      <dt className={name ? "" : "sr-only"}>{name || "amount"}</dt>
      <dd className="text-ink">{children}</dd>
    </div>
  );
}
