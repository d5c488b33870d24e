/** Where the time of the run went along its critical path, by kind; a kind makes its segments stand out. */
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { isOver } from "../store/run-status";
import type { SegmentKind } from "../store/segments";
import { texts } from "../texts";
import { duration } from "../ui/format";
import { Button } from "../ui/parts";
import type { CriticalPath } from "./contents";
import { useRun, useRunContext } from "./use-run";

const t = texts.time;
const KINDS = ["run_slot", "queue", "rate_limit", "person", "stream_wait", "work", "rest"] as const;
const LIVE_MS = 5000;
const LARGE = { steps: 2000, ms: 30_000 }; // the path of a large run takes the server a while

export type CriticalKind = (typeof KINDS)[number];

/** The segments that a kind of the critical path is made of; `rest` is what no segment explains. */
export const SEGMENTS_OF: Readonly<Record<CriticalKind, readonly SegmentKind[]>> = {
  run_slot: ["run_slot"], queue: ["queue"], rate_limit: ["rate_limit"], person: ["person"], stream_wait: ["stream_wait"],
  work: ["work", "call", "tool", "lost"], rest: [],
};

/** Return the critical path; null where nobody computes one. */
export function useCriticalPath(): CriticalPath | null {
  const { contents } = useRunContext();
  const id = useRun((state) => state.header?.id ?? "");
  const status = useRun((state) => state.header?.status ?? "");
  const liveMs = useRun((state) => (state.steps.count > LARGE.steps ? LARGE.ms : LIVE_MS));
  const { data } = useQuery({
    queryKey: ["run", id, "critical", isOver(status)],
    queryFn: () => contents.criticalPath?.() ?? null,
    enabled: contents.criticalPath !== undefined && id !== "",
    staleTime: isOver(status) ? Number.POSITIVE_INFINITY : liveMs,
    refetchInterval: isOver(status) ? false : liveMs,
  });
  return data ?? null;
}

interface Props {
  path: CriticalPath;
  kind: CriticalKind | null;
  onKind: (kind: CriticalKind | null) => void;
}

export function CriticalSums({ path, kind, onKind }: Props): ReactNode {
  if (path.parts === null) return <p className="border-b border-line px-2 py-1 text-ink-2">{path.unavailable}</p>;
  const { parts } = path;
  const shown = KINDS.filter((each) => (parts[each] ?? 0) > 0);
  return (
    <div role="group" aria-label={t.critical} data-testid="critical" className="flex shrink-0 flex-wrap items-center gap-1 border-b border-line px-2 py-1">
      <span className="text-ink-2">{t.critical}</span>
      <span className="font-medium tabular-nums" data-ms={path.ms ?? 0}>
        {duration(path.ms)} =
      </span>
      {shown.map((each, index) => (
        <span key={each} className="flex items-center gap-1">
          {index ? <span aria-hidden="true">+</span> : null}
          <Button aria-pressed={kind === each} data-part={each} data-ms={parts[each]} onClick={() => onKind(kind === each ? null : each)}>
            <span className="tabular-nums">{duration(parts[each] ?? 0)}</span> {t.kinds[each]}
          </Button>
        </span>
      ))}
    </div>
  );
}
