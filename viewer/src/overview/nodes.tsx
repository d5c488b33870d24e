/** The slowest nodes, and those that fail most, of the latest runs. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import type { Overview, OverviewNode } from "../api/replies";
import { texts } from "../texts";
import { count, duration } from "../ui/format";
import { visibleName } from "../ui/visible-text";
import { countedFrom } from "./figures";
import { Section } from "./shares";
import { Table } from "./table";

const t = texts.overview;
const MAX_ROWS = 10;

export function NodeTables({ overview }: { overview: Overview }): ReactNode {
  const { nodes, nodes_of_runs: runs } = overview;
  const slowest = nodes.filter((node) => node.p95_ms !== null).sort((a, b) => (b.p95_ms ?? 0) - (a.p95_ms ?? 0)).slice(0, MAX_ROWS);
  const failing = nodes.filter((node) => node.failed).sort((a, b) => b.failed - a.failed || b.failed / b.count - a.failed / a.count).slice(0, MAX_ROWS);
  const note = runs ? t.ofRuns(runs) : "";
  return (
    <>
      <Section title={t.slowest} note={note}>
        {slowest.length ? <Nodes label={t.slowest} nodes={slowest} overview={overview} /> : <p className="text-ink-2">{t.noNodes}</p>}
      </Section>
      <Section title={t.failing} note={note}>
        {failing.length ? <Nodes label={t.failing} nodes={failing} overview={overview} /> : <p className="text-ink-2">{t.noFailing}</p>}
      </Section>
    </>
  );
}

function Nodes({ label, nodes, overview }: { label: string; nodes: readonly OverviewNode[]; overview: Overview }): ReactNode {
  const titles = new Map(overview.agents.map((agent) => [agent.agent_id, agent.title]));
  const range = { from: new Date(countedFrom(overview)).toISOString(), to: new Date(Date.parse(overview.to)).toISOString() };
  return (
    <Table label={label} head={[t.columns.node, t.columns.agent, t.columns.steps, t.columns.failed, t.columns.median, t.columns.p95]} textColumns={2}>
      {nodes.map((node) => (
        <tr key={`${node.version_id} ${node.node_id}`}>
          <th scope="row" className="min-w-32 text-left font-normal">
            <Link to="/runs" search={{ agent: node.agent_id, version: node.version_id, ...range }} className="inline-block min-h-6 leading-6 [overflow-wrap:anywhere] text-accent underline">
              <bdi>{visibleName(node.node_id, 60)}</bdi>
            </Link>
          </th>
          <td className="max-w-40 truncate text-ink-2">
            <bdi>{visibleName(titles.get(node.agent_id) ?? node.agent_id.slice(0, 8), 60)}</bdi>
          </td>
          <td className="text-right tabular-nums">{count(node.count)}</td>
          <td className={`text-right tabular-nums ${node.failed ? "text-red" : ""}`}>{count(node.failed)}</td>
          <td className="text-right whitespace-nowrap tabular-nums">{duration(node.p50_ms)}</td>
          <td className="text-right whitespace-nowrap tabular-nums">{duration(node.p95_ms)}</td>
        </tr>
      ))}
    </Table>
  );
}
