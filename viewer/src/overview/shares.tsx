/** Cost by agent and by model, or tokens where nothing has a price: a table with bars. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import type { Overview, OverviewModel } from "../api/replies";
import { texts } from "../texts";
import { count } from "../ui/format";
import { visibleName } from "../ui/visible-text";
import { costOf, costText } from "./cost";
import { countedFrom, listFilter, mainCurrency } from "./figures";
import { Table } from "./table";

const t = texts.overview;

interface Share {
  key: string;
  name: ReactNode;
  amount: number;
  tokens: number;
  cost: Record<string, number>;
  runsOrCalls: number;
}

export function AgentShares({ overview }: { overview: Overview }): ReactNode {
  const [from, to] = [countedFrom(overview), Date.parse(overview.to)];
  const currency = mainCurrency(overview.agents);
  const shares = overview.agents.map((agent): Share => {
    const name = visibleName(agent.title ?? t.deleted, 80);
    return {
      key: agent.agent_id,
      name: (
        <Link to="/runs" search={listFilter(from, to, agent.agent_id)} className="inline-block min-h-6 max-w-full truncate align-top leading-6 text-accent underline">
          <bdi>{name}</bdi>
        </Link>
      ),
      amount: currency === null ? agent.tokens : (agent.cost[currency] ?? 0),
      tokens: agent.tokens,
      cost: agent.cost,
      runsOrCalls: agent.runs,
    };
  });
  const title = currency === null ? t.tokensByAgent : t.costByAgent;
  return (
    <Section title={title}>
      {shares.length ? <Shares label={title} head={[t.columns.agent, t.columns.runs]} shares={shares} /> : <p className="text-ink-2">{t.none}</p>}
      {overview.agents_cut ? <p className="text-ink-2">{t.cutAgents}</p> : null}
    </Section>
  );
}

export function ModelShares({ overview }: { overview: Overview }): ReactNode {
  const { models, runs_without_model_calls: without } = overview;
  const rows = (models ?? []).map((model) => ({ model, cost: costOf(model.cost) }));
  const currency = mainCurrency(rows);
  const shares = rows.map(({ model, cost }): Share => {
    const tokens = tokensOf(model);
    return {
      key: `${model.model}@${model.account}`,
      name: <bdi className="inline-block max-w-full truncate align-top leading-6">{visibleName(model.account ? `${model.model} · ${model.account}` : model.model, 100)}</bdi>,
      amount: currency === null ? tokens : (cost[currency] ?? 0),
      tokens,
      cost,
      runsOrCalls: model.calls,
    };
  });
  const title = currency === null ? t.tokensByModel : t.costByModel;
  return (
    <Section title={title}>
      {shares.length ? <Shares label={title} head={[t.columns.model, t.columns.calls]} shares={shares} /> : <p className="text-ink-2">{models === null ? t.modelsFailed : t.noModels}</p>}
      {overview.models_cut ? <p className="text-ink-2">{t.cutModels}</p> : null}
      {without ? <p className="text-ink-2">{t.withoutCalls(without)}</p> : null}
    </Section>
  );
}

function tokensOf(model: OverviewModel): number {
  return typeof model.total_tokens === "number" ? model.total_tokens : 0;
}

function Shares({ label, head, shares }: { label: string; head: readonly [string, string]; shares: readonly Share[] }): ReactNode {
  const most = Math.max(...shares.map((share) => share.amount));
  const sorted = [...shares].sort((a, b) => b.amount - a.amount);
  return (
    <Table label={label} head={[...head, t.columns.tokens, t.columns.cost]}>
      {sorted.map((share) => (
        <tr key={share.key}>
          <th scope="row" className="w-1/2 max-w-0 text-left font-normal">
            {share.name}
            <span aria-hidden="true" className="block h-1.5 rounded bg-raised">
              <span className="block h-full rounded bg-accent" style={{ width: `${most ? (100 * share.amount) / most : 0}%` }} />
            </span>
          </th>
          <td className="text-right tabular-nums">{count(share.runsOrCalls)}</td>
          <td className="text-right tabular-nums">{count(share.tokens)}</td>
          <td className="text-right tabular-nums">{costText(share.cost) ?? "–"}</td>
        </tr>
      ))}
    </Table>
  );
}

export function Section({ title, note, children }: { title: string; note?: string; children: ReactNode }): ReactNode {
  return (
    <section aria-label={title} className="min-w-0 overflow-x-auto rounded-lg border border-line p-3">
      <h2 className="mb-1 font-semibold">
        {title} {note ? <span className="font-normal text-ink-2">{note}</span> : null}
      </h2>
      {children}
    </section>
  );
}
