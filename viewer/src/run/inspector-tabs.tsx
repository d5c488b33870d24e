/** Tabs of the inspector whose contents are loaded when they are shown. */
import { useCallback, useState, type ReactNode } from "react";

import type { ModelCall, ToolCall } from "../store/run";
import type { Step } from "../store/steps";
import { texts } from "../texts";
import { clockMs, count, duration, money } from "../ui/format";
import { CopyButton, Empty } from "../ui/parts";
import { asJson, LongText, NamedValue, Value } from "../ui/values";
import { visibleName, visibleText } from "../ui/visible-text";
import type { ValueKind, Values } from "./contents";
import { useLoaded, useNodeNames, useRun, useRunContext, type Loaded } from "./use-run";

const t = texts.inspector;

function Loading<T>({ loaded, children }: { loaded: Loaded<T>; children: (value: T) => ReactNode }): ReactNode {
  if (loaded.at === "loading") return <Empty>{t.loading}</Empty>;
  if (loaded.at === "failed") return <p role="alert" className="break-words text-red">{visibleText(loaded.error)}</p>;
  return children(loaded.value);
}

export function ValuesTab({ stepId, which }: { stepId: string; which: "input" | "output" }): ReactNode {
  const { contents } = useRunContext();
  const names = useNodeNames();
  const loaded = useLoaded(stepId, useCallback((id: string) => contents.stepValues(id), [contents]));
  const wholeOf = (kind: ValueKind): LoadWhole => contents.wholeValue && ((name) => contents.wholeValue?.(stepId, kind, name) ?? Promise.resolve(null));
  return (
    <Loading loaded={loaded}>
      {(values) => {
        const shown = which === "input" ? values.inputs : values.outputs;
        const hasMore = which === "output" && (Object.keys(values.variables).length > 0 || Object.keys(values.written).length > 0);
        return (
          <>
            {Object.keys(shown).length || hasMore ? <NamedValues values={shown} loadWhole={wholeOf(which === "input" ? "inputs" : "outputs")} /> : <Empty>{t.noValues[which]}</Empty>}
            {which === "output" && Object.keys(values.variables).length ? (
              <Group title={t.variables}>
                <NamedValues values={values.variables} loadWhole={wholeOf("variables")} />
              </Group>
            ) : null}
            {which === "output"
              ? Object.entries(values.written).map(([node, outputs]) => (
                  <Group key={node} title={t.containerOutputs(visibleName(names.get(node) ?? node, 60))}>
                    <NamedValues values={outputs} />
                  </Group>
                ))
              : null}
          </>
        );
      }}
    </Loading>
  );
}

function Group({ title, children }: { title: string; children: ReactNode }): ReactNode {
  return (
    <section className="mt-3">
      <h3 className="font-semibold">{title}</h3>
      {children}
    </section>
  );
}

type LoadWhole = ((name: string) => Promise<unknown>) | undefined;

function NamedValues({ values, loadWhole }: { values: Values; loadWhole?: LoadWhole }): ReactNode {
  return Object.entries(values).map(([name, value]) => (
    <NamedValue key={name} name={name} value={value} loadWhole={loadWhole && (() => loadWhole(name))} />
  ));
}

const NO_CALLS: readonly ModelCall[] = [];
const NO_TOOLS: readonly ToolCall[] = [];

export function ModelTab({ stepId }: { stepId: string }): ReactNode {
  const calls = useRun((state) => state.modelCalls.get(stepId) ?? NO_CALLS);
  if (!calls.length) return <Empty>{t.noCalls}</Empty>;
  return calls.map((call, index) => <Call key={call.id} call={call} isOpen={index === calls.length - 1} />);
}

function Call({ call, isOpen: isFirstOpen }: { call: ModelCall; isOpen: boolean }): ReactNode {
  const [isOpen, setOpen] = useState(isFirstOpen);
  const hasFailed = call.status !== "ok";
  const took = call.startedAt === null || call.endedAt === null ? null : call.endedAt - call.startedAt;
  const first = call.startedAt === null || call.firstTokenAt === null ? null : call.firstTokenAt - call.startedAt;
  const figures = [
    call.round ?? `attempt ${call.attempt}`,
    duration(took),
    first === null ? null : `first token after ${duration(first)}`,
    call.tokensIn === null ? null : `${count(call.tokensIn)} → ${count(call.tokensOut)} tokens`,
    call.tokensCached ? `${count(call.tokensCached)} cached` : null,
    money(call.cost),
    call.waitedMs ? `waited ${duration(call.waitedMs)} for the rate limit` : null,
    call.tries > 1 ? `${call.tries} tries` : null,
  ];
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)} data-tone={hasFailed ? "red" : "neutral"} className="mb-2 rounded border border-line">
      <summary className="min-h-6 cursor-pointer bg-panel px-2 py-1">
        <span className="font-semibold">{visibleName(call.model, 80)}</span>{" "}
        <span className={hasFailed ? "text-tone" : "text-ink-2"}>{visibleName(call.status, 30)}</span>{" "}
        <span className="text-ink-2">{visibleName(figures.filter((each) => each !== null).join(" · "))}</span>
      </summary>
      <div className="p-2">
        {call.error ? <p className="mb-2 break-words text-tone">{visibleText(call.error)}</p> : null}
        {isOpen ? <Bodies call={call} /> : null}
      </div>
    </details>
  );
}

function Bodies({ call }: { call: ModelCall }): ReactNode {
  const { contents } = useRunContext();
  const loaded = useLoaded(call.id, useCallback((id: string) => contents.callBodies(id), [contents]));
  return (
    <Loading loaded={loaded}>
      {(bodies) =>
        bodies === null ? (
          <p className="text-ink-2">{call.bodies === "hidden" ? t.hidden.hidden : t.hidden.none}</p>
        ) : (
          <>
            <div className="flex items-center">
              <h3 className="flex-1 font-semibold">{t.messages}</h3>
              <CopyButton text={() => asJson(bodies)} />
            </div>
            {bodies.messages.map((message, index) => (
              <ChatMessage key={index} message={message} />
            ))}
            {bodies.response === null ? null : (
              <>
                <h3 className="mt-2 font-semibold">{t.answer}</h3>
                <ChatMessage message={bodies.response} />
              </>
            )}
            {bodies.tools === null ? null : <Folded title={t.offered} value={bodies.tools} />}
            <Folded title={t.params} value={bodies.params} />
          </>
        )
      }
    </Loading>
  );
}

function Folded({ title, value }: { title: string; value: unknown }): ReactNode {
  if (typeof value === "object" && value !== null && Object.keys(value).length === 0) return null;
  return (
    <details className="mt-2">
      <summary className="min-h-6 cursor-pointer font-semibold">{title}</summary>
      <Value value={value} />
    </details>
  );
}

function ChatMessage({ message }: { message: unknown }): ReactNode {
  if (typeof message !== "object" || message === null || "$preview" in message) return <Value value={message} />;
  const { role, content, ...others } = message as Record<string, unknown>;
  const more = Object.fromEntries(Object.entries(others).filter(([, value]) => value !== null && value !== undefined));
  return (
    <div className="my-1 border-l-2 border-line-strong pl-2">
      <p className="text-xs font-semibold text-ink-2">{visibleName(typeof role === "string" ? role : "message", 30)}</p>
      {content === null || content === undefined || content === "" ? null : <Value value={content} />}
      {Object.keys(more).length ? <Value value={more} /> : null}
    </div>
  );
}

export function ToolsTab({ stepId }: { stepId: string }): ReactNode {
  const calls = useRun((state) => state.toolCalls.get(stepId) ?? NO_TOOLS);
  if (!calls.length) return <Empty>{t.noTools}</Empty>;
  return calls.map((call) => <Tool key={call.id} call={call} />);
}

function Tool({ call }: { call: ToolCall }): ReactNode {
  const { contents } = useRunContext();
  const loaded = useLoaded(call.id, useCallback((id: string) => contents.toolBodies(id), [contents]));
  const figures = [call.round, call.elapsedMs === null ? null : duration(call.elapsedMs), call.replayed ? t.replayed : null];
  return (
    <section data-tone={call.failed ? "red" : "neutral"} className="mb-2 rounded border border-line">
      <h3 className="bg-panel px-2 py-1 font-normal">
        <span className="font-mono text-xs font-semibold">{visibleName(call.toolName, 80)}</span>{" "}
        {call.failed ? <span className="text-tone">failed</span> : null}{" "}
        <span className="text-ink-2">{visibleName(figures.filter((each) => each !== null).join(" · "))}</span>
      </h3>
      <div className="px-2">
        <Loading loaded={loaded}>
          {(bodies) => (
            <>
              <NamedValue name={t.arguments} value={bodies.arguments} />
              <NamedValue name={t.result} value={bodies.result} />
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
    { attempt: step.attempt, startedAt: step.startedAt, endedAt: step.finishedAt, worker: step.worker, error: step.error, end: step.outcome ?? t.current },
  ];
  return (
    <table className="w-full text-left">
      <thead className="text-ink-2">
        <tr>
          {["#", "started", "took", "worker", "ended"].map((name) => (
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
  return own.map((event) => <EventDetails key={event.number} number={event.number} name={event.name} at={event.at} />);
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
