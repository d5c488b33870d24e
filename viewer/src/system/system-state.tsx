/** The state of the deployment: what works and what does not, each with what follows from it. */
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { aboutQuery } from "../api/queries";
import type { SystemState as State } from "../api/replies";
import { Table } from "../overview/table";
import { Section } from "../overview/shares";
import { texts } from "../texts";
import { count, duration } from "../ui/format";
import { Moment } from "../ui/moment";
import { StateBadge } from "../ui/parts";
import { visibleText } from "../ui/visible-text";
import { problemsOf } from "./problems";

const t = texts.system;

/** Whether something works; null if that is not known. */
function Health({ isGood, good = t.ok, bad = t.notOk, unknown = t.unknown }: { isGood: boolean | null; good?: string; bad?: string; unknown?: string }): ReactNode {
  if (isGood === null) return <StateBadge look={{ word: unknown, icon: "–", tone: "neutral", border: "dotted" }} />;
  return <StateBadge look={isGood ? { word: good, icon: "✓", tone: "green", border: "solid" } : { word: bad, icon: "✗", tone: "red", border: "thick" }} />;
}

export function SystemState({ state }: { state: State }): ReactNode {
  const problems = problemsOf(state);
  return (
    <div className="min-h-0 flex-1 overflow-auto" tabIndex={0} role="region" aria-label={t.title}>
      <div className="mx-auto flex max-w-5xl flex-col gap-3 p-3">
        <p role="status" data-testid="system-health" data-problems={problems} data-tone={problems ? "red" : "green"} className="rounded-lg bg-tone-soft px-3 py-2 text-base font-semibold text-tone">
          <span aria-hidden="true">{problems ? "✗" : "✓"}</span> {problems ? t.bad(problems) : t.good}
        </p>
        <Queues state={state} />
        <div className="grid grid-cols-1 gap-3 md:grid-cols-2">
          <Checks state={state} />
          <Sweeper state={state} />
          <Activations state={state} />
          <Process state={state} />
        </div>
        <Settings state={state} />
      </div>
    </div>
  );
}

function Queues({ state: { queues, now, flower_url: flower } }: { state: State }): ReactNode {
  return (
    <Section title={t.queues}>
      <Table label={t.queues} head={[t.queue, t.state, t.probe, t.length]} textColumns={3}>
        {queues.map((queue) => {
          const isStopped = queue.is_moving === false;
          return (
            <tr key={queue.name} data-testid="queue" data-queue={queue.name} data-moving={String(queue.is_moving)} data-tone={isStopped ? "red" : "neutral"} className={isStopped ? "bg-tone-soft" : ""}>
              <th scope="row" className="text-left font-normal">
                <span className="font-medium">{queue.name}</span>
                <span className="block text-xs text-ink-2">{t.queueHints[queue.name] ?? ""}</span>
              </th>
              <td className="[&>span]:whitespace-normal">
                <Health isGood={queue.is_moving} good={t.moving} bad={t.stopped} unknown={queue.probe_at === null && queue.name !== "nodes" ? t.noProbes : t.unknown} />
              </td>
              <td className="whitespace-nowrap">{queue.probe_at === null ? (queue.is_moving === null ? "–" : t.never) : <Moment at={Date.parse(queue.probe_at)} now={now} />}</td>
              <td className="text-right tabular-nums">{count(queue.length)}</td>
            </tr>
          );
        })}
      </Table>
      <p className="mt-1 flex flex-wrap gap-x-4 text-xs text-ink-2">
        <span>
          {t.lengthHint}
        </span>
        {flower === null ? null : (
          <a href={flower} target="_blank" rel="noopener noreferrer" className="inline-block min-h-6 text-accent underline">
            {t.flower}
          </a>
        )}
      </p>
    </Section>
  );
}

function Checks({ state: { checks } }: { state: State }): ReactNode {
  return (
    <Section title={t.checks}>
      <Table label={t.checks} head={[t.check, t.state]} textColumns={2}>
        {Object.entries(checks).map(([name, result]) => (
          <tr key={name} data-testid="check" data-check={name} data-ok={result === "ok" ? "1" : "0"}>
            <th scope="row" className="text-left font-normal">
              <span className="font-medium">{t.checkNames[name] ?? name}</span>
              <span className="block text-xs text-ink-2">{t.checkHints[name] ?? ""}</span>
            </th>
            <td>
              <Health isGood={result === "ok"} />
              {result === "ok" ? null : <span className="block text-xs [overflow-wrap:anywhere] text-red">{visibleText(result)}</span>}
            </td>
          </tr>
        ))}
      </Table>
    </Section>
  );
}

function Sweeper({ state: { sweeper, now } }: { state: State }): ReactNode {
  return (
    <Section title={t.sweeper}>
      <p className="mb-1 text-xs text-ink-2">{t.sweeperHint}</p>
      <p className="[&>span]:whitespace-normal">
        <Health isGood={sweeper?.is_running ?? null} good={t.sweeping} bad={t.notSweeping} />
      </p>
      {sweeper ? (
        <Facts
          facts={[
            [t.seen, sweeper.seen_at === null ? t.never : <Moment at={Date.parse(sweeper.seen_at)} now={now} />],
            ...(sweeper.since === null ? [] : [[t.since, <Moment at={Date.parse(sweeper.since)} now={0} />] as const]),
          ]}
        />
      ) : null}
    </Section>
  );
}

function Activations({ state: { activations } }: { state: State }): ReactNode {
  return (
    <Section title={t.activations}>
      {activations ? (
        <Table label={t.activations} head={[t.state, t.count]}>
          {(["ready", "running", "reported"] as const).map((name) => (
            <tr key={name}>
              <th scope="row" className="text-left font-normal">
                <span className="font-medium">{t[name]}</span> <span className="text-xs text-ink-2">{t.activationHints[name]}</span>
              </th>
              <td className="text-right tabular-nums">{activations.is_capped && activations[name] >= 10_000 ? t.orMore(count(activations[name])) : count(activations[name])}</td>
            </tr>
          ))}
        </Table>
      ) : (
        <p>{t.unknown}</p>
      )}
    </Section>
  );
}

function Process({ state }: { state: State }): ReactNode {
  const { data: about } = useQuery({ ...aboutQuery, enabled: false });
  return (
    <Section title={t.process}>
      <Facts
        facts={[
          [t.release, state.release],
          [t.uptime, duration(state.uptime_s * 1000)],
          [t.build, <code key="build" className="font-mono text-xs">{about?.build ?? "–"}</code>],
        ]}
      />
    </Section>
  );
}

function Facts({ facts }: { facts: readonly (readonly [string, ReactNode])[] }): ReactNode {
  return (
    <dl className="grid grid-cols-[auto_1fr] gap-x-4 gap-y-1">
      {facts.map(([name, value]) => (
        <div key={name} className="contents">
          <dt className="text-ink-2">{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Settings({ state: { settings } }: { state: State }): ReactNode {
  return (
    <Section title={t.settings} note={t.settingsHint}>
      <Table label={t.settings} head={[t.setting, t.value]} textColumns={2}>
        {settings.map(({ name, value }) => (
          <tr key={name}>
            <th scope="row" className="text-left font-normal">
              <code className="font-mono text-xs [overflow-wrap:anywhere]">{name}</code>
              <span className="block text-xs text-ink-2">{t.settingHints[name] ?? ""}</span>
            </th>
            <td className="[overflow-wrap:anywhere] tabular-nums">
              {value === null ? <span className="text-ink-2">{t.notSet}</span> : <code className="font-mono text-xs">{visibleText(String(value))}</code>}
            </td>
          </tr>
        ))}
      </Table>
    </Section>
  );
}
