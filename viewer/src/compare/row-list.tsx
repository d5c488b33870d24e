/** The rows of a comparison as a virtual table: only those in view are drawn, and further pages are read as they are needed. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, type KeyboardEvent, type ReactNode } from "react";

import { texts } from "../texts";
import { Empty } from "../ui/parts";
import { useNarrow } from "../ui/use-width";
import { resultOf, type ComparedRow } from "./rows";
import type { LoadedComparison } from "./use-comparison";

const t = texts.compare;
const WIDE_HEIGHT = 32;
const NARROW_HEIGHT = 58;
const AHEAD = 100; // rows before the end at which the next page is read

export interface RowProps {
  row: ComparedRow;
  isNarrow: boolean;
}

interface Props {
  comparison: LoadedComparison;
  selected: string | null;
  onSelect: (stepId: string) => void;
  /** The columns, as classes of a grid. */
  columns: string;
  head: ReactNode;
  Cells: (props: RowProps) => ReactNode;
}

export function RowList({ comparison, selected, onSelect, columns, head, Cells }: Props): ReactNode {
  const { rows, total, hasMore, isLoadingMore, loadMore } = comparison;
  const scroller = useRef<HTMLDivElement>(null);
  const isNarrow = useNarrow(800);
  const height = isNarrow ? NARROW_HEIGHT : WIDE_HEIGHT;
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    getItemKey: (index) => rows[index]?.id ?? index,
    overscan: 10,
    scrollPaddingStart: WIDE_HEIGHT,
  });
  useEffect(() => virtual.measure(), [virtual, height]);
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (hasMore && !isLoadingMore && last >= rows.length - AHEAD) loadMore();
  }, [hasMore, isLoadingMore, last, rows.length, loadMore]);

  const move = (event: KeyboardEvent, index: number): void => {
    const to = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: rows.length - 1 }[event.key];
    const row = to === undefined ? undefined : rows[to];
    if (to === undefined || !row) return;
    event.preventDefault();
    virtual.scrollToIndex(to);
    requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById(`compared-${row.id}`)?.focus()));
  };
  if (!rows.length) return <Empty>{comparison.isLoading ? t.loading : total ? t.loading : t.none}</Empty>;
  return (
    <div ref={scroller} className="min-h-0 flex-1 overflow-auto" role="region" aria-label={t.table} tabIndex={0}>
      <div role="table" aria-label={t.table} aria-rowcount={total + 1}>
        <div role="rowgroup" className={isNarrow ? "sr-only" : "sticky top-0 z-20"}>
          <div role="row" aria-rowindex={1} className={`${columns} h-8 border-b border-line bg-panel text-ink-2`}>
            {head}
          </div>
        </div>
        <div role="rowgroup" className="relative" style={{ height: virtual.getTotalSize() }}>
          {items.map((item) => {
            const row = rows[item.index];
            if (!row) return null;
            const isSelected = selected !== null && (row.a?.id === selected || row.b?.id === selected);
            return (
              <div
                key={row.id}
                id={`compared-${row.id}`}
                role="row"
                tabIndex={0}
                aria-rowindex={item.index + 2}
                aria-selected={isSelected}
                data-testid="compare-row"
                data-activation={row.id}
                data-node-id={row.nodeId}
                data-scope={row.scope}
                data-result={resultOf(row.what)}
                data-what={row.what}
                style={{ height, transform: `translateY(${item.start}px)` }}
                onClick={() => onSelect(row.id)}
                onKeyDown={(event) => {
                  if (event.key === "Enter" || event.key === " ") {
                    event.preventDefault();
                    onSelect(row.id);
                  } else move(event, item.index);
                }}
                className={`absolute inset-x-0 cursor-pointer border-b border-line hover:bg-panel focus-visible:outline-offset-[-2px] ${isSelected ? "bg-accent-soft" : ""} ${isNarrow ? "grid grid-cols-[minmax(0,1fr)_auto] grid-rows-2 items-center gap-x-2 px-3" : columns}`}
              >
                <Cells row={row} isNarrow={isNarrow} />
              </div>
            );
          })}
        </div>
      </div>
      <p className="px-3 py-1 text-ink-2">{isLoadingMore ? t.loading : t.shown(rows.length, total)}</p>
    </div>
  );
}
