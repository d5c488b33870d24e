/** Log: the events of the run, of which only the rows in view exist. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";

import { texts } from "../texts";
import { clockMs } from "../ui/format";
import { Button, Empty } from "../ui/parts";
import { useNarrow } from "../ui/use-width";
import { visibleName } from "../ui/visible-text";
import { useNodeNames, useRun, useRunContext } from "./use-run";

const t = texts.log;
const ROW_HEIGHT = 28;
const NARROW_ROW_HEIGHT = 48; // two lines: the event, and below it the step with the details
const COLUMNS = "grid max-sm:grid-cols-[3rem_6rem_minmax(0,1fr)] sm:grid-cols-[3.5rem_6.5rem_minmax(6rem,11rem)_minmax(0,1fr)] md:grid-cols-[3.5rem_6.5rem_11rem_minmax(6rem,14rem)_minmax(0,1fr)] gap-x-2";

export function LogPane(): ReactNode {
  const events = useRun((state) => state.events);
  const names = useNodeNames();
  const { selectedStep, selectStep, search, onSearch, isFollowing, setFollowing } = useRunContext();
  const filter = search.find ?? "";
  const [kind, setKind] = useState("");
  const scroller = useRef<HTMLDivElement>(null);
  const shown = useMemo(() => {
    const wanted = filter.trim().toLowerCase();
    if (!wanted && !kind) return events;
    return events.filter((event) =>
      (!kind || event.name === kind) &&
      [event.name, event.nodeId ?? "", names.get(event.nodeId ?? "") ?? "", event.summary].some((text) => text.toLowerCase().includes(wanted)),
    );
  }, [events, names, filter, kind]);
  const kinds = useMemo(() => [...new Set(events.map((event) => event.name))].sort(), [events]);
  const isNarrow = useNarrow(640);
  const rowHeight = isNarrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT;
  const virtual = useVirtualizer({ count: shown.length, getScrollElement: () => scroller.current, estimateSize: () => rowHeight, overscan: 12, scrollPaddingStart: isNarrow ? 0 : ROW_HEIGHT });
  useEffect(() => virtual.measure(), [rowHeight, virtual]);
  useEffect(() => {
    if (isFollowing && shown.length) virtual.scrollToIndex(shown.length - 1, { align: "end" });
  }, [isFollowing, shown.length, virtual]);
  if (!events.length) return <Empty>{t.empty}</Empty>;
  return (
    <>
      <div className="flex shrink-0 flex-wrap items-center gap-3 border-b border-line px-2 py-1">
        <label className="flex items-center gap-2">
          {t.filter}
          <input
            type="search"
            data-filter=""
            value={filter}
            placeholder={t.placeholder}
            onChange={(event) => onSearch({ find: event.target.value || undefined }, true)}
            className="min-h-6 w-56 rounded border border-line-strong bg-surface px-2 placeholder:text-ink-2"
          />
        </label>
        <select aria-label={t.kind} value={kind} onChange={(event) => setKind(event.target.value)} className="min-h-6 rounded border border-line-strong bg-surface text-ink">
          <option value="">{t.allKinds}</option>
          {kinds.map((each) => (
            <option key={each} value={each}>
              {visibleName(each, 60)}
            </option>
          ))}
        </select>
        <Button aria-pressed={isFollowing} onClick={() => setFollowing(!isFollowing)}>
          {t.follow}
        </Button>
        <span className="text-ink-2">{t.shown(shown.length, events.length)}</span>
      </div>
      {shown.length ? (
        <div ref={scroller} role="table" aria-label={t.table} aria-rowcount={shown.length + 1} tabIndex={0} className="min-h-0 flex-1 overflow-auto">
          <div role="rowgroup" className={isNarrow ? "sr-only" : "sticky top-0 z-10"}>
            <div role="row" aria-rowindex={1} className={`${COLUMNS} h-7 items-center border-b border-line bg-panel px-2 text-ink-2`}>
              <span role="columnheader">{t.number}</span>
              <span role="columnheader">{t.time}</span>
              <span role="columnheader">{t.event}</span>
              <span role="columnheader" className="max-md:hidden">
                {t.step}
              </span>
              <span role="columnheader">{t.details}</span>
            </div>
          </div>
          <div role="rowgroup" style={{ height: virtual.getTotalSize(), position: "relative" }}>
            {virtual.getVirtualItems().map((item) => {
              const event = shown[item.index];
              if (!event) return null;
              const name = event.nodeId === null ? "" : visibleName(names.get(event.nodeId) ?? event.nodeId, 80);
              return (
                <div
                  key={event.number}
                  role="row"
                  aria-rowindex={item.index + 2}
                  data-testid="event-row"
                  data-seq={event.number}
                  className={`${COLUMNS} absolute inset-x-0 items-center border-b border-line px-2 ${event.stepId !== null && event.stepId === selectedStep ? "bg-accent-soft" : ""}`}
                  style={{ height: rowHeight, transform: `translateY(${item.start}px)` }}
                >
                  <span role="cell" className="text-ink-2 tabular-nums">
                    {event.number}
                  </span>
                  <span role="cell" className="tabular-nums">
                    {event.at === null ? "" : <time dateTime={new Date(event.at).toISOString()}>{clockMs(event.at)}</time>}
                  </span>
                  <span role="cell" className="truncate font-mono text-xs">
                    {visibleName(event.name, 60)}
                  </span>
                  <span role="cell" className="truncate max-md:hidden">
                    <StepLink name={name} item={event.item} stepId={event.stepId} onSelect={selectStep} />
                  </span>
                  <span role="cell" className="truncate font-mono text-xs text-ink-2 max-sm:col-span-3">
                    <span className="md:hidden">
                      <StepLink name={name} item={event.item} stepId={event.stepId} onSelect={selectStep} />{" "}
                    </span>
                    {visibleName(event.summary, 300)}
                  </span>
                </div>
              );
            })}
          </div>
        </div>
      ) : (
        <Empty>{t.none}</Empty>
      )}
    </>
  );
}

interface LinkProps {
  name: string;
  item: number | null;
  stepId: string | null;
  onSelect: (stepId: string) => void;
}

function StepLink({ name, item, stepId, onSelect }: LinkProps): ReactNode {
  const shown = (
    <>
      <bdi>{name}</bdi>
      {item === null ? "" : ` · ${texts.time.item(item)}`}
    </>
  );
  if (stepId === null) return shown;
  return (
    <button type="button" className="min-h-6 max-w-full truncate text-accent underline" onClick={() => onSelect(stepId)}>
      {shown}
    </button>
  );
}
