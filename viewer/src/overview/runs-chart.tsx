/** Runs by end state over time: stacked bars, each of which leads to its runs. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { texts } from "../texts";
import { count, minute } from "../ui/format";
import { ChartFrame, type Scales } from "./chart-frame";
import { listFilter, STATES, type Part } from "./figures";
import { Table } from "./table";

const t = texts.overview;
const GAP = 1;
const MIN_HEIGHT = 2;

interface Props {
  parts: readonly Part[];
  agent: string | undefined;
}

export function RunsChart({ parts, agent }: Props): ReactNode {
  const totals = parts.map((part) => STATES.reduce((sum, { name }) => sum + part[name], 0));
  const used = parts.filter((_, index) => totals[index]);
  return (
    <ChartFrame
      title={t.runsChart}
      legend={<Legend />}
      begin={parts[0]?.t ?? 0}
      end={parts.at(-1)?.end ?? 1}
      max={Math.max(0, ...totals)}
      tickText={(value) => count(value)}
      draw={(scales) => used.map((part) => <Bar key={part.t} part={part} agent={agent} scales={scales} />)}
      table={
        <Table head={[t.begins, ...STATES.map(({ name }) => t.states[name])]}>
          {used.map((part) => (
            <tr key={part.t}>
              <th scope="row" className="text-left font-normal whitespace-nowrap">
                {minute(part.t)}
              </th>
              {STATES.map(({ name, statuses }) => (
                <td key={name} className="text-right tabular-nums">
                  {part[name] ? (
                    <Link to="/runs" search={listFilter(part.t, part.end, agent, statuses)} className="inline-block min-h-6 min-w-6 text-accent underline" aria-label={barName(part, name)}>
                      {count(part[name])}
                    </Link>
                  ) : (
                    0
                  )}
                </td>
              ))}
            </tr>
          ))}
        </Table>
      }
    />
  );
}

function barName(part: Part, name: (typeof STATES)[number]["name"]): string {
  return t.bar(part[name], t.states[name], minute(part.t), minute(part.end));
}

function Bar({ part, agent, scales: { x, y } }: { part: Part; agent: string | undefined; scales: Scales }): ReactNode {
  const left = x(part.t);
  const width = Math.max(1, x(part.end) - left - GAP);
  let base = y(0);
  return STATES.map(({ name, statuses, tone }) => {
    if (!part[name]) return null;
    const height = Math.max(MIN_HEIGHT, y(0) - y(part[name]));
    base -= height;
    return (
      <Link key={name} to="/runs" search={listFilter(part.t, part.end, agent, statuses)} tabIndex={-1} data-bar={name} data-at={part.t}>
        <rect x={left} y={base} width={width} height={height} data-tone={tone} className={`bar bar-${name}`}>
          <title>{barName(part, name)}</title>
        </rect>
      </Link>
    );
  });
}

function Legend(): ReactNode {
  return (
    <ul className="flex flex-wrap gap-x-3 text-xs text-ink-2">
      {STATES.map(({ name, tone, icon }) => (
        <li key={name} className="flex items-center gap-1">
          <svg aria-hidden="true" width="12" height="12">
            <rect x="1" y="1" width="10" height="10" data-tone={tone} className={`bar bar-${name}`} />
          </svg>
          <span aria-hidden="true">{icon}</span>
          {t.states[name]}
        </li>
      ))}
    </ul>
  );
}
