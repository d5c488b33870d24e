/** The inspector of a step: what it read and stored, its model calls, tool calls, attempts, events. */
import * as Tabs from "@radix-ui/react-tabs";
import { useMemo, useState, type ReactNode } from "react";

import { TABS, type Tab } from "./run-search";
import { NODE_LOOKS, stepState, workOf } from "../store/node-states";
import type { RunState } from "../store/run";
import { scopeParts } from "../store/scopes";
import { segmentsOf, type Segment } from "../store/segments";
import type { Step } from "../store/steps";
import { texts } from "../texts";
import { count, duration, moment } from "../ui/format";
import { ErrorBoundary } from "../ui/error-boundary";
import { Button, CopyButton, StateBadge } from "../ui/parts";
import { LongText } from "../ui/values";
import { visibleName, visibleText } from "../ui/visible-text";
import { Bars, segmentText } from "./bars";
import { ForkFromHere } from "./copy-actions";
import { Hideable } from "./hidden";
import { AttemptsTab, EventsTab, RawTab, ToolsTab } from "./inspector-tabs";
import { ModelTab } from "./model-tab";
import { ParametersTab } from "./parameters-tab";
import { Reads, useStepDetails } from "./reads";
import { runStart } from "./time-domain";
import { ValuesTab } from "./values-tab";
import { useNodeNames, useRunContext, useRunState } from "./use-run";

const t = texts.inspector;

export function Inspector({ tab, onTab }: { tab: Tab; onTab: (tab: Tab) => void }): ReactNode {
  const state = useRunState();
  const { selectedStep, selectStep, onSearch } = useRunContext();
  const names = useNodeNames();
  const step = state.steps.find(selectedStep ?? undefined);
  const row = selectedStep === null ? null : state.steps.rowOf(selectedStep);
  const close = (
    <Button aria-label={texts.close} onClick={() => selectStep(null)}>
      ✕
    </Button>
  );
  if (!step || row === null) {
    return (
      <div className="flex items-start gap-2 p-3">
        <p className="flex-1">{t.unknown}</p>
        {close}
      </div>
    );
  }
  const name = names.get(step.nodeId) ?? step.nodeId;
  return (
    <>
      <div className="shrink-0 border-b border-line p-2">
        <div className="flex items-start gap-2">
          <div className="min-w-0 flex-1">
            <h2 className="truncate text-sm font-semibold" title={visibleName(name)}>
              <bdi>{visibleName(name, 120)}</bdi>
            </h2>
            <p className="truncate text-ink-2">
              {visibleName(step.component, 60)} · <span className="font-mono text-xs">{visibleName(step.nodeId, 80)}</span>
              {step.attempt > 1 ? ` · ${texts.time.attempt(step.attempt)}` : ""}
            </p>
          </div>
          <StateBadge look={NODE_LOOKS[stepState(state, row)]} extra={duration(step.startedAt === null ? null : workOf(state.steps, row, state.now))} />
          <ForkFromHere stepId={step.id} />
          {close}
        </div>
        <ItemPath scope={step.scope} state={state} />
        <div className="mt-1 flex flex-wrap items-center gap-2 empty:hidden">
          <Siblings state={state} row={row} />
          {step.outcome === "ContainerOpened" ? (
            <Button onClick={() => onSearch({ items: step.id, item: undefined, which: undefined })}>{texts.items.open}</Button>
          ) : null}
        </div>
      </div>
      <Tabs.Root value={tab} onValueChange={(value) => onTab(value as Tab)} className="flex min-h-0 flex-1 flex-col">
        <Tabs.List aria-label={t.title} className="flex shrink-0 flex-wrap border-b border-line px-1">
          {TABS.map((each) => (
            <Tabs.Trigger
              key={each}
              value={each}
              data-testid="inspector-tab"
              data-tab={each}
              className="min-h-8 border-b-2 border-transparent px-1.5 text-ink-2 data-[state=active]:border-accent data-[state=active]:font-medium data-[state=active]:text-ink"
            >
              {t.tabs[each]}
              <TabCount state={state} step={step} tab={each} />
            </Tabs.Trigger>
          ))}
        </Tabs.List>
        <Tabs.Content value={tab} className="min-h-0 flex-1 overflow-auto p-3" key={`${step.id} ${tab}`} tabIndex={0}>
          <ErrorBoundary>
            <TabPane tab={tab} step={step} state={state} />
          </ErrorBoundary>
        </Tabs.Content>
      </Tabs.Root>
    </>
  );
}

function TabCount({ state, step, tab }: { state: RunState; step: Step; tab: Tab }): ReactNode {
  const counts: Partial<Record<Tab, number>> = {
    model: state.modelCalls.get(step.id)?.length ?? 0,
    tools: state.toolCalls.get(step.id)?.length ?? 0,
    attempts: step.attempt > 1 ? step.attempt : 0,
  };
  return counts[tab] ? <span className="text-ink-2"> {counts[tab]}</span> : null;
}

function TabPane({ tab, step, state }: { tab: Tab; step: Step; state: RunState }): ReactNode {
  switch (tab) {
    case "overview":
      return <Overview step={step} state={state} />;
    case "input":
    case "output":
      return (
        <Hideable part={tab === "input" ? "inputs" : "outputs"}>
          <ValuesTab stepId={step.id} which={tab} />
        </Hideable>
      );
    case "model":
      return <ModelTab stepId={step.id} />;
    case "tools":
      return <ToolsTab stepId={step.id} />;
    case "attempts":
      return <AttemptsTab step={step} />;
    case "parameters":
      return <ParametersTab stepId={step.id} nodeId={step.nodeId} />;
    case "events":
      return <EventsTab stepId={step.id} />;
    case "raw":
      return <RawTab stepId={step.id} />;
  }
}

function ItemPath({ scope, state }: { scope: string; state: RunState }): ReactNode {
  const names = useNodeNames();
  const parts = scopeParts(scope);
  if (!parts.length || !state.header) return null;
  return (
    <p className="truncate text-ink-2">
      {parts.map((part) => `${visibleName(names.get(part.container) ?? part.container, 60)} › ${texts.time.item(part.item)}`).join(" › ")}
    </p>
  );
}

/** Previous and next step of the same node, of all or of those that failed. */
function Siblings({ state, row }: { state: RunState; row: number }): ReactNode {
  const { selectStep } = useRunContext();
  const [isFailedOnly, setFailedOnly] = useState(false);
  const nodeId = state.steps.text(row, "nodeId");
  const rows = useMemo(() => state.steps.inOrder().filter((each) => state.steps.text(each, "nodeId") === nodeId), [state, nodeId]);
  if (rows.length < 2) return null;
  const hasFailed = (each: number): boolean => state.steps.text(each, "outcome") === "Failed";
  const failed = rows.filter(hasFailed).length;
  const at = rows.indexOf(row);
  const go = (by: 1 | -1): number | undefined => {
    const others = by > 0 ? rows.slice(at + 1) : rows.slice(0, at).reverse();
    return isFailedOnly ? others.find(hasFailed) : others[0];
  };
  const [before, after] = [go(-1), go(1)];
  return (
    <div className="flex items-center gap-2">
      <Button aria-label={t.previous} disabled={before === undefined} onClick={() => before !== undefined && selectStep(state.steps.id(before))}>
        ‹
      </Button>
      <span className="tabular-nums">{t.place(at + 1, rows.length)}</span>
      <Button aria-label={t.next} disabled={after === undefined} onClick={() => after !== undefined && selectStep(state.steps.id(after))}>
        ›
      </Button>
      {failed ? (
        <label className="flex min-h-6 items-center gap-1">
          <input type="checkbox" checked={isFailedOnly} onChange={(event) => setFailedOnly(event.target.checked)} />
          {t.failedOnly} ({count(failed)})
        </label>
      ) : null}
    </div>
  );
}

function Overview({ step, state }: { step: Step; state: RunState }): ReactNode {
  const names = useNodeNames();
  const details = useStepDetails(step.id);
  const segments = segmentsOf(step, state.attempts.get(step.id) ?? [], state.modelCalls.get(step.id) ?? [], state.toolCalls.get(step.id) ?? [], runStart(state), state.now);
  const facts: [string, ReactNode][] = [
    ["outcome", outcomeOf(step, names)],
    ["attempt", step.attempt ? `${step.attempt}${step.crashCount ? `, worker lost ${step.crashCount} time(s)` : ""}` : null],
    ["created", time(step.createdAt)],
    ["started", time(step.startedAt)],
    ["finished", time(step.finishedAt)],
    ["items ended", time(step.endedAt)],
    ["tokens", step.tokensIn === null ? null : `${count(step.tokensIn)} → ${count(step.tokensOut)}`],
    ["cost", step.cost],
    [t.worker, step.worker],
    [t.effect, step.effect],
    ["id", <Id key="id" id={step.id} />],
  ];
  return (
    <div className="flex flex-col gap-3">
      {step.error ? (
        <section data-tone={stepState(state, state.steps.rowOf(step.id) ?? 0) === "handled" ? "amber" : "red"} data-border="solid" className="rounded bg-tone-soft p-2">
          <div className="flex items-center">
            <h3 className="flex-1 font-semibold text-tone">
              {t.error}
              {step.code ? <span className="font-mono text-xs font-normal"> {visibleName(step.code, 60)}</span> : null}
            </h3>
            <CopyButton text={() => step.error ?? ""} label={texts.run.copyError} />
          </div>
          <LongText text={step.error} />
        </section>
      ) : null}
      {details?.explain ? <p className="rounded bg-accent-soft p-2">{visibleText(details.explain)}</p> : null}
      <dl className="grid grid-cols-[6.5rem_minmax(0,1fr)] gap-x-2 gap-y-0.5">
        {facts.map(([name, value]) =>
          value === null || value === undefined ? null : (
            <div key={name} className="contents">
              <dt className="text-ink-2">{name}</dt>
              <dd className="break-words">{typeof value === "string" ? visibleText(value) : value}</dd>
            </div>
          ),
        )}
      </dl>
      <Reads stepId={step.id} />
      {segments.length ? <Segments segments={segments} hasFailed={step.outcome === "Failed"} /> : null}
    </div>
  );
}

/** Where the time of the step went, as a small bar and as figures. */
function Segments({ segments, hasFailed }: { segments: readonly Segment[]; hasFailed: boolean }): ReactNode {
  const from = Math.min(...segments.map((each) => each.from));
  const to = Math.max(...segments.map((each) => each.to));
  return (
    <section>
      <h3 className="mb-1 font-semibold">{t.steps}</h3>
      <Bars segments={segments} domain={{ from, to: Math.max(to, from + 1) }} hasFailed={hasFailed} />
      <ol>
        {segments.map((each, index) => (
          <li key={index} className="flex items-center gap-2">
            <svg aria-hidden="true" width="18" height="10" className="shrink-0">
              <rect className={`segment segment-${each.kind}`} x="1" y="1" width="16" height="8" rx="1" />
            </svg>
            {segmentText(each)}
          </li>
        ))}
      </ol>
    </section>
  );
}

function outcomeOf(step: Step, names: ReadonlyMap<string, string>): string | null {
  if (step.outcome === null) return null;
  const targets = step.routedTo?.map((id) => visibleName(names.get(id) ?? id, 60)).join(", ");
  const items = step.count === null ? "" : ` (${texts.time.items(step.count)})`;
  return targets ? `${step.outcome}: ${t.routed} ${targets}` : `${step.outcome}${items}`;
}

function time(ms: number | null): ReactNode {
  return ms === null ? null : <time dateTime={new Date(ms).toISOString()}>{moment(ms)}</time>;
}

function Id({ id }: { id: string }): ReactNode {
  return (
    <span className="flex items-center font-mono text-xs break-all">
      {visibleName(id, 80)}
      <CopyButton text={() => id} />
    </span>
  );
}
