/** Tabs of the inspector whose contents are loaded when they are shown. */
import { useCallback, type ReactNode } from "react";

import type { ToolCall } from "../store/run";
import type { Step } from "../store/steps";
import { texts } from "../texts";
import { clockMs, count, duration } from "../ui/format";
import { CopyButton, Empty } from "../ui/parts";
import { asJson, LongText, NamedValue, Value } from "../ui/values";
import { visibleName, visibleText } from "../ui/visible-text";
import { Loading } from "./loading";
import { OwnFiles } from "./own-files";
import { useLoaded, useRun, useRunContext } from "./use-run";

const t = texts.inspector;

const MAX_EVENTS = 50; // each is loaded
const NO_TOOLS: readonly ToolCall[] = [];

export function ToolsTab({ stepId }: { stepId: string }): ReactNode {
  const calls = useRun((state) => state.toolCalls.get(stepId) ?? NO_TOOLS);
  if (!calls.length) return <Empty>{t.noTools}</Empty>;
  return calls.map((call) => <Tool key={call.id} call={call} />);
}

function Tool({ call }: { call: ToolCall }): ReactNode {
  const { contents } = useRunContext();
  const loaded = useLoaded(call.id, useCallback((id: string) => contents.toolBodies(id), [contents]));
  const figures = [
    call.round,
    call.attempt === null ? null : texts.time.attempt(call.attempt),
    call.startedAt === null ? null : clockMs(call.startedAt),
    call.elapsedMs === null ? null : duration(call.elapsedMs),
  ];
  return (
    <section data-testid="tool-call" data-tone={call.failed ? "red" : "neutral"} className="mb-2 rounded border border-line">
      <h3 className="bg-panel px-2 py-1 font-normal">
        <span className="font-mono text-xs font-semibold">{visibleName(call.toolName, 80)}</span>{" "}
        {call.failed ? <span className="text-tone">failed</span> : null}{" "}
        <span className="text-ink-2">{figures.filter((each) => each !== null).join(" · ")}</span>{" "}
        {call.replayed ? <span className="rounded bg-accent-soft px-1 text-accent">{t.replayed}</span> : null}
      </h3>
      <div className="px-2 pb-1">
        <Loading loaded={loaded}>
          {(bodies) => (
            <>
              <NamedValue name={t.arguments} value={bodies.arguments} />
              <NamedValue name={t.result} value={bodies.result} />
              <OwnFiles value={bodies.result} />
            </>
          )}
        </Loading>
      </div>
    </section>
  );
}

export function AttemptsTab({ step }: { step: Step }): ReactNode {
  const earlier = useRun((state) => state.attempts.get(step.id));
  if (!earlier?.length) return <Empty>{t.oneAttempt}</Empty>;
  const rows = [
    ...earlier.toSorted((a, b) => a.attempt - b.attempt).map((each) => ({ ...each, end: each.endReason ?? "" })),
    {
      attempt: step.attempt, startedAt: step.startedAt, endedAt: step.finishedAt, worker: step.worker, error: step.error,
      end: step.outcome ?? t.current, tokens: (step.tokensIn ?? 0) + (step.tokensOut ?? 0) || null,
    },
  ];
  return (
    <table className="w-full text-left">
      <thead className="text-ink-2">
        <tr>
          {["#", "started", "took", "tokens", "worker", "ended"].map((name) => (
            <th key={name} scope="col" className="pr-2 font-normal">
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((each) => (
          <tr key={each.attempt} className="border-t border-line align-top">
            <td className="pr-2">{each.attempt}</td>
            <td className="pr-2 tabular-nums">{each.startedAt === null ? "–" : clockMs(each.startedAt)}</td>
            <td className="pr-2 tabular-nums">{duration(each.startedAt === null || each.endedAt === null ? null : each.endedAt - each.startedAt)}</td>
            <td className="pr-2 tabular-nums">{each.tokens === null ? "–" : count(each.tokens)}</td>
            <td className="pr-2 font-mono text-xs break-all">{visibleName(each.worker ?? "–", 60)}</td>
            <td className="break-words">
              {visibleName(each.end.replaceAll("_", " "), 60)}
              {each.error ? <p className="text-red">{visibleText(each.error)}</p> : null}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function EventsTab({ stepId }: { stepId: string }): ReactNode {
  const events = useRun((state) => state.events);
  const own = events.filter((event) => event.stepId === stepId);
  if (!own.length) return <Empty>{t.noEvents}</Empty>;
  return own.slice(0, MAX_EVENTS).map((event) => <EventDetails key={event.number} number={event.number} name={event.name} at={event.at} />);
}

function EventDetails({ number, name, at }: { number: number; name: string; at: number | null }): ReactNode {
  const { contents } = useRunContext();
  const loaded = useLoaded(String(number), useCallback((key: string) => contents.eventBody(Number(key)), [contents]));
  return (
    <section className="border-b border-line py-1">
      <h3 className="font-normal">
        <span className="text-ink-2 tabular-nums">{number}</span> <span className="font-mono text-xs font-semibold">{visibleName(name, 60)}</span>{" "}
        {at === null ? null : <time dateTime={new Date(at).toISOString()}>{clockMs(at)}</time>}
      </h3>
      <Loading loaded={loaded}>{(body) => <Value value={body} />}</Loading>
    </section>
  );
}

export function RawTab({ stepId }: { stepId: string }): ReactNode {
  const { contents } = useRunContext();
  const loaded = useLoaded(stepId, useCallback((id: string) => contents.rawStep(id), [contents]));
  return (
    <Loading loaded={loaded}>
      {(row) => {
        const text = asJson(row);
        return (
          <>
            <CopyButton text={() => text} />
            <LongText text={text} />
          </>
        );
      }}
    </Loading>
  );
}
