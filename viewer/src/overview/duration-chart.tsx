/** Median and 95th percentile of durations over time: two lines, with a gap where no run ended. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { texts } from "../texts";
import { duration, minute } from "../ui/format";
import { ChartFrame, type Scales } from "./chart-frame";
import { listFilter, type Part } from "./figures";
import { pathOf } from "./line-path";
import { Table } from "./table";

const t = texts.overview;
const ENDED = "succeeded,failed";
const LINES = [
  { name: "p50_ms", title: t.median, className: "line-median" },
  { name: "p95_ms", title: t.p95, className: "line-p95" },
] as const;

type LineName = (typeof LINES)[number]["name"];

interface Props {
  parts: readonly Part[];
  agent: string | undefined;
}

export function DurationChart({ parts, agent }: Props): ReactNode {
  const used = parts.filter((part) => part.p50_ms !== null);
  return (
    <ChartFrame
      title={t.durationChart}
      legend={<Legend />}
      begin={parts[0]?.t ?? 0}
      end={parts.at(-1)?.end ?? 1}
      max={Math.max(0, ...parts.map((part) => part.p95_ms ?? 0))}
      tickText={(value) => (value === 0 ? "0" : duration(value).replace(/\.0+(?= )/, ""))}
      draw={(scales) => LINES.map(({ name, className }) => <Line key={name} name={name} className={className} parts={parts} agent={agent} scales={scales} />)}
      table={
        <Table head={[t.begins, t.median, t.p95]}>
          {used.map((part) => (
            <tr key={part.t}>
              <th scope="row" className="text-left font-normal whitespace-nowrap">
                <Link to="/runs" search={listFilter(part.t, part.end, agent, ENDED)} className="inline-block min-h-6 text-accent underline">
                  {minute(part.t)}
                </Link>
              </th>
              <td className="text-right tabular-nums">{duration(part.p50_ms)}</td>
              <td className="text-right tabular-nums">{duration(part.p95_ms)}</td>
            </tr>
          ))}
        </Table>
      }
    />
  );
}

interface LineProps extends Props {
  name: LineName;
  className: string;
  scales: Scales;
}

function Line({ name, className, parts, agent, scales: { x, y } }: LineProps): ReactNode {
  const middle = (part: Part): number => x((part.t + part.end) / 2);
  return (
    <g className={className}>
      <path d={pathOf(parts, (part) => (part[name] === null ? null : [middle(part), y(part[name])]))} fill="none" />
      {parts.map((part) =>
        part[name] === null ? null : (
          <Link key={part.t} to="/runs" search={listFilter(part.t, part.end, agent, ENDED)} tabIndex={-1}>
            <circle cx={middle(part)} cy={y(part[name])} r={3}>
              <title>{`${name === "p50_ms" ? t.median : t.p95}: ${duration(part[name])}, ${minute(part.t)}`}</title>
            </circle>
          </Link>
        ),
      )}
    </g>
  );
}

function Legend(): ReactNode {
  return (
    <ul className="flex flex-wrap gap-x-3 text-xs text-ink-2">
      {LINES.map(({ name, title, className }) => (
        <li key={name} className="flex items-center gap-1">
          <svg aria-hidden="true" width="22" height="12" className={className}>
            <path d="M0,6L22,6" />
            <circle cx="11" cy="6" r="3" />
          </svg>
          {title}
        </li>
      ))}
    </ul>
  );
}
