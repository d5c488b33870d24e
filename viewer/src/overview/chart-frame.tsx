/** A chart as SVG with its axes, and the same figures as a table. The picture is for the pointer, the table for everyone. */
import { scaleLinear, scaleTime, scaleUtc } from "d3-scale";
import { useRef, type ReactNode } from "react";

import { texts } from "../texts";
import { clock, day } from "../ui/format";
import { useSettings } from "../ui/settings";
import { useWidth } from "../ui/use-width";

const t = texts.overview;
const HEIGHT = 190;
const MARGIN = { top: 8, right: 8, bottom: 22, left: 52 };
const DAYS_MS = 2 * 86_400_000;
const MIN_TICK_WIDTH = 70;

export interface Scales {
  x: (ms: number) => number;
  y: (value: number) => number;
}

interface Props {
  title: string;
  legend: ReactNode;
  begin: number;
  end: number;
  /** The highest value; 0 if there is none. */
  max: number;
  tickText: (value: number) => string;
  draw: (scales: Scales) => ReactNode;
  table: ReactNode;
}

export function ChartFrame({ title, legend, begin, end, max, tickText, draw, table }: Props): ReactNode {
  const holder = useRef<HTMLDivElement>(null);
  const width = useWidth(holder);
  const { zone } = useSettings();
  const x = (zone === "utc" ? scaleUtc() : scaleTime()).domain([begin, end]).range([MARGIN.left, Math.max(MARGIN.left + 1, width - MARGIN.right)]);
  const y = scaleLinear().domain([0, max || 1]).nice(4).range([HEIGHT - MARGIN.bottom, MARGIN.top]);
  const ticks = x.ticks(Math.max(2, Math.floor(width / MIN_TICK_WIDTH / 1.5)));
  const values = y.ticks(4).filter((value) => max > 3 || Number.isInteger(value) || tickText(value) !== tickText(Math.round(value)));
  return (
    <figure className="min-w-0 rounded-lg border border-line p-3">
      <figcaption className="mb-1 flex flex-wrap items-center gap-x-4 gap-y-1">
        <h2 className="font-semibold">{title}</h2>
        {legend}
      </figcaption>
      <div ref={holder} className="w-full">
        {width ? (
          <svg aria-hidden="true" width={width} height={HEIGHT} className="block">
            {values.map((value) => (
              <g key={value}>
                <line x1={MARGIN.left} x2={width - MARGIN.right} y1={y(value)} y2={y(value)} className="stroke-line" />
                <text x={MARGIN.left - 6} y={y(value)} dy="0.32em" textAnchor="end" className="fill-ink-2 text-[11px] tabular-nums">
                  {tickText(value)}
                </text>
              </g>
            ))}
            {ticks.map((at) => (
              <text key={at.getTime()} x={x(at)} y={HEIGHT - 6} textAnchor="middle" className="fill-ink-2 text-[11px] tabular-nums">
                {end - begin <= DAYS_MS ? clock(at.getTime()).slice(0, 5) : day(at.getTime()).slice(5)}
              </text>
            ))}
            {draw({ x: (ms) => x(ms), y: (value) => y(value) })}
          </svg>
        ) : (
          <div style={{ height: HEIGHT }} />
        )}
      </div>
      <details>
        <summary className="min-h-6 w-fit cursor-pointer text-ink-2">{t.table}</summary>
        <div className="max-h-72 overflow-auto" tabIndex={0} role="region" aria-label={t.tableOf(title)}>
          {table}
        </div>
      </details>
    </figure>
  );
}
