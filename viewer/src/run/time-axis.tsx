/** The ruler of Time, on which a part is selected by dragging, and the brush that moves that part along the run. */
import { scaleLinear } from "d3-scale";
import { useRef, useState, type PointerEvent, type ReactNode } from "react";

import { texts } from "../texts";
import { clock, clockMs } from "../ui/format";
import type { Domain } from "./bars";
import { within } from "./time-domain";

const t = texts.time;
const LEAST_DRAG = 4; // pixels; less is a click

interface AxisProps {
  domain: Domain;
  whole: Domain;
  isShort: boolean;
  /** Milliseconds since 1970 at which the run started, for an axis with the hours of the day; else null. */
  clockStart: number | null;
  onZoom: (domain: Domain | null) => void;
}

export function Axis({ domain, whole, isShort, clockStart, onZoom }: AxisProps): ReactNode {
  const scale = scaleLinear([domain.from, domain.to], [0, 100]);
  const ticks = scale.ticks(isShort ? 2 : 5).filter((tick) => scale(tick) <= (isShort ? 80 : 92));
  const step = (ticks[1] ?? domain.to) - (ticks[0] ?? domain.from);
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const place = (event: PointerEvent<HTMLElement>): number => {
    const box = event.currentTarget.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  };
  const timeAt = (at: number): number => domain.from + at * (domain.to - domain.from);
  const finish = (event: PointerEvent<HTMLElement>): void => {
    if (!drag) return;
    const [first, last] = [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)];
    const pixels = (last - first) * event.currentTarget.getBoundingClientRect().width;
    if (pixels >= LEAST_DRAG) onZoom(within({ from: timeAt(first), to: timeAt(last) }, whole));
    setDrag(null);
  };
  return (
    <span
      aria-hidden="true"
      data-testid="ruler"
      title={t.dragRuler}
      className="relative block h-6 cursor-crosshair touch-none overflow-hidden text-[11px] select-none"
      onPointerDown={(event) => {
        if (event.button !== 0) return;
        event.currentTarget.setPointerCapture(event.pointerId);
        setDrag({ from: place(event), to: place(event) });
      }}
      onPointerMove={(event) => drag && setDrag({ ...drag, to: place(event) })}
      onPointerUp={finish}
      onPointerCancel={() => setDrag(null)}
    >
      {ticks.map((tick) => (
        <span key={tick} className="absolute h-full border-l border-line-strong pl-0.5 leading-6 whitespace-nowrap" style={{ left: `${scale(tick)}%` }}>
          {clockStart === null ? tickText(tick, domain.to) : step < 1000 ? clockMs(clockStart + tick) : clock(clockStart + tick)}
        </span>
      ))}
      {drag ? (
        <span
          className="absolute inset-y-0 bg-accent/30"
          style={{ left: `${100 * Math.min(drag.from, drag.to)}%`, width: `${100 * Math.abs(drag.to - drag.from)}%` }}
        />
      ) : null}
    </span>
  );
}

function tickText(ms: number, last: number): string {
  if (last >= 120_000) return `${(ms / 60_000).toLocaleString("en", { maximumFractionDigits: 1 })} min`;
  if (last < 2000) return `${ms.toLocaleString("en", { maximumFractionDigits: 1 })} ms`;
  return `${(ms / 1000).toLocaleString("en", { maximumFractionDigits: 3 })} s`;
}

interface BrushProps {
  domain: Domain;
  whole: Domain;
  /** How busy the run was in equal parts of its time. */
  density: readonly number[];
  onZoom: (domain: Domain | null) => void;
}

/** The whole run with the part that is shown; dragging it or the arrow keys move that part. */
export function Brush({ domain, whole, density, onZoom }: BrushProps): ReactNode {
  const length = domain.to - domain.from;
  const all = whole.to - whole.from;
  const grip = useRef<number | null>(null);
  const move = (from: number): void => onZoom(within({ from, to: from + length }, whole) ?? domain);
  const timeAt = (event: PointerEvent<HTMLElement>): number => {
    const box = event.currentTarget.getBoundingClientRect();
    return whole.from + ((event.clientX - box.left) / box.width) * all;
  };
  const percent = (time: number): string => `${(100 * (time - whole.from)) / all}%`;
  return (
    <div
      role="slider"
      tabIndex={0}
      aria-label={t.brush}
      aria-valuemin={Math.round(whole.from)}
      aria-valuemax={Math.round(whole.to - length)}
      aria-valuenow={Math.round(domain.from)}
      aria-valuetext={t.fromTo(tickText(domain.from, whole.to), tickText(domain.to, whole.to))}
      className="relative h-6 shrink-0 cursor-grab touch-none border-t border-line bg-panel select-none"
      onKeyDown={(event) => {
        const by = { ArrowLeft: -0.1, ArrowRight: 0.1, PageUp: -1, PageDown: 1 }[event.key];
        if (by === undefined) return;
        event.preventDefault();
        move(domain.from + by * length);
      }}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        const time = timeAt(event);
        const isInside = time >= domain.from && time <= domain.to;
        grip.current = isInside ? time - domain.from : length / 2;
        if (!isInside) move(time - length / 2);
      }}
      onPointerMove={(event) => grip.current !== null && move(timeAt(event) - grip.current)}
      onPointerUp={() => {
        grip.current = null;
      }}
    >
      <DensityBand density={density} />
      <span className="absolute inset-y-0 min-w-1 border-x-2 border-accent bg-accent/20" style={{ left: percent(domain.from), width: `${(100 * length) / all}%` }} />
    </div>
  );
}

/** How many items or steps were active, as a filled line over the width of what it stands in. */
export function DensityBand({ density, height = 24 }: { density: readonly number[]; height?: number }): ReactNode {
  const most = Math.max(1, ...density);
  const points = density.map((each, at) => `${at},${height - (each / most) * (height - 2)} ${at + 1},${height - (each / most) * (height - 2)}`);
  return (
    <svg aria-hidden="true" viewBox={`0 0 ${density.length} ${height}`} preserveAspectRatio="none" className="absolute inset-0 h-full w-full">
      <polygon points={`0,${height} ${points.join(" ")} ${density.length},${height}`} fill="var(--accent)" opacity={0.35} />
    </svg>
  );
}
