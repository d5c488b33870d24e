/** The bar of a row of Time: its segments on the axis, with a tooltip that names one of them. */
import { scaleLinear } from "d3-scale";
import type { ReactNode } from "react";

import { SEGMENT_WORDS, type Segment, type SegmentKind } from "../store/segments";
import { texts } from "../texts";
import { duration } from "../ui/format";
import { visibleName } from "../ui/visible-text";

export const ROW_HEIGHT = 28;
const BAR_HEIGHT = 12;
const MIN_BAR_WIDTH = 2;

/** A part of the run, in milliseconds since its start. */
export interface Domain {
  from: number;
  to: number;
}

interface Props {
  segments: readonly Segment[];
  domain: Domain;
  hasFailed: boolean;
  /** The segment that is named, by its place. */
  named?: number | null | undefined;
  /** The kinds that stand out; all of them if it is null. */
  highlighted?: ReadonlySet<SegmentKind> | null;
}

export function Bars({ segments, domain, hasFailed, named = null, highlighted = null }: Props): ReactNode {
  const scale = scaleLinear([domain.from, domain.to], [0, 100]);
  return (
    <svg aria-hidden="true" width="100%" height={ROW_HEIGHT} className="block">
      {segments.map((each, index) => {
        const isThin = each.kind === "open" || each.kind === "stream_wait";
        const isCall = each.kind === "call" || each.kind === "tool";
        const height = isThin || isCall ? BAR_HEIGHT / 2 : BAR_HEIGHT;
        const [x, end] = [scale(each.from), scale(each.to)];
        if (end < -1 || x > 101) return null;
        const isFaint = highlighted !== null && !highlighted.has(each.kind);
        const width = `max(${MIN_BAR_WIDTH}px, ${end - x}%)`;
        return (
          <g key={index} opacity={isFaint ? 0.2 : 1}>
            <rect
              className={`segment segment-${each.kind}`}
              data-place={index}
              {...(hasFailed && each.kind === "work" ? { "data-failed": "" } : {})}
              x={`${x}%`}
              y={(ROW_HEIGHT - height) / 2}
              width={width}
              style={{ width, ...(index === named ? { strokeWidth: 3 } : {}) }}
              height={height}
              rx={1}
            />
            {each.firstToken === undefined ? null : (
              <line x1={`${scale(each.firstToken)}%`} x2={`${scale(each.firstToken)}%`} y1={6} y2={ROW_HEIGHT - 6} stroke="var(--amber)" strokeWidth={2} />
            )}
            {each.kind === "lost" ? (
              <svg x={`${end}%`} y={(ROW_HEIGHT - BAR_HEIGHT) / 2} overflow="visible">
                <path d="M0 0l-4 2 4 2-4 2 4 2-4 2 4 2" fill="var(--surface)" stroke="var(--red)" />
              </svg>
            ) : null}
          </g>
        );
      })}
    </svg>
  );
}

/** Return what a segment is, how long it lasts and when: "waited for a worker 12 ms, from 0.30 s to 0.31 s". */
export function segmentText(segment: Segment): string {
  return `${visibleName(segment.label, 120)} ${duration(segment.to - segment.from)}, ${texts.time.fromTo(duration(segment.from), duration(segment.to))}`;
}

/** Return the place of the segment that lies at a time, the innermost if several do. */
export function segmentAt(segments: readonly Segment[], time: number, tolerance: number): number | null {
  let found: number | null = null;
  segments.forEach((each, index) => {
    const isThere = time >= each.from - tolerance && time <= each.to + tolerance;
    const isInner = found === null || each.to - each.from <= (segments[found]?.to ?? 0) - (segments[found]?.from ?? 0);
    if (isThere && isInner) found = index;
  });
  return found;
}

export function Hatches(): ReactNode {
  return (
    <svg aria-hidden="true" width="0" height="0" className="absolute">
      <defs>
        <pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <line x1="0" y1="0" x2="0" y2="5" stroke="var(--neutral)" strokeWidth="1.5" />
        </pattern>
        <pattern id="cross-hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <path d="M0 0V5M0 0H5" stroke="var(--amber)" strokeWidth="1.5" />
        </pattern>
        <pattern id="stripes" width="4" height="4" patternUnits="userSpaceOnUse">
          <line x1="1" y1="0" x2="1" y2="4" stroke="var(--ink)" strokeWidth="2" />
        </pattern>
      </defs>
    </svg>
  );
}

const LEGEND: readonly SegmentKind[] = ["run_slot", "queue", "work", "call", "tool", "person", "rate_limit", "open", "lost"];

export function Legend(): ReactNode {
  return (
    <ul aria-label={texts.time.legend} className="flex shrink-0 flex-wrap gap-x-4 border-t border-line px-2 py-1 text-xs text-ink-2">
      {LEGEND.map((kind) => (
        <li key={kind} className="flex items-center gap-1">
          <svg aria-hidden="true" width="18" height="10">
            <rect className={`segment segment-${kind}`} x="1" y="1" width="16" height="8" rx="1" />
          </svg>
          {SEGMENT_WORDS[kind]}
        </li>
      ))}
    </ul>
  );
}
