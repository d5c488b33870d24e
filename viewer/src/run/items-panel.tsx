/** The items of a container as a strip of cells, and the steps of the item that is open as a small waterfall. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from "react";

import { ITEM_FILTERS, type ItemFilter } from "./run-search";
import { cellsOf, entryOfStep, itemIn, itemMs, itemsOf, type Cell, type Item } from "../store/items";
import { NODE_LOOKS, stepState, workOf, type StepState } from "../store/node-states";
import { isOver } from "../store/run-status";
import { segmentsOf } from "../store/segments";
import { texts } from "../texts";
import { duration } from "../ui/format";
import { Button, Empty } from "../ui/parts";
import { useWidth } from "../ui/use-width";
import { visibleName } from "../ui/visible-text";
import { Bars } from "./bars";
import { runStart } from "./time-domain";
import { useNodeNames, useRun, useRunContext, useRunState } from "./use-run";

const t = texts.items;
const CELL_PIXELS = 3;
const MOST_SLOW = 100;
const MOST_PAGES = 20; // of 2,000 items
const LIVE_MS = 2000;
const LOOKS: Readonly<Record<Item["state"], StepState>> = { failed: "failed", active: "running", closed: "closed", done: "done" };

export function ItemsPanel({ stepId }: { stepId: string }): ReactNode {
  const state = useRunState();
  const names = useNodeNames();
  const { search, onSearch } = useRunContext();
  const { items, total, isCut, error } = useItems(stepId);
  const [range, setRange] = useState<readonly [from: number, to: number] | null>(null);
  const which = search.which ?? "all";
  const shown = useMemo(() => selectItems(items, which, range, state.now), [items, which, range, state.now]);
  const nodeId = state.steps.find(stepId)?.nodeId ?? "";
  const done = items.filter((each) => each.state !== "active").length;
  const item = search.item === undefined ? null : Number(search.item);
  const isContainer = entryOfStep(state, stepId) !== null;
  return (
    <section aria-label={t.title(visibleName(names.get(nodeId) ?? nodeId, 60))} data-testid="items" className="flex max-h-[45%] shrink-0 flex-col overflow-auto border-t border-line-strong bg-surface">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1 px-2 py-1">
        <h2 className="min-w-0 truncate font-semibold">{t.title(visibleName(names.get(nodeId) ?? nodeId, 60))}</h2>
        <span className="text-ink-2 tabular-nums">{t.done(done, total ?? items.length)}</span>
        <div role="group" aria-label={t.filter} className="flex flex-wrap gap-1">
          {ITEM_FILTERS.map((each) => (
            <Button key={each} aria-pressed={which === each} onClick={() => onSearch({ which: each === "all" ? undefined : each })}>
              {t.which[each]}
            </Button>
          ))}
        </div>
        {range ? <Button onClick={() => setRange(null)}>{t.back}</Button> : null}
        <span className="flex-1" />
        <Button aria-label={t.close} onClick={() => onSearch({ items: undefined, item: undefined, which: undefined })}>
          ✕
        </Button>
      </div>
      {error === null ? null : (
        <p role="alert" className="px-2 text-red">
          {error}
        </p>
      )}
      {shown.length ? (
        <Strip items={shown} chosen={item} onItem={(chosen) => onSearch({ item: String(chosen) })} onRange={(from, to) => setRange([from, to])} />
      ) : (
        <Empty>{!isContainer ? t.notContainer : items.length ? t.none : t.noItems}</Empty>
      )}
      {isCut ? <p className="px-2 text-ink-2">{t.first(items.length)}</p> : null}
      {item === null || !isContainer ? null : <ItemSteps key={item} stepId={stepId} item={item} />}
    </section>
  );
}

function selectItems(items: readonly Item[], which: ItemFilter, range: readonly [number, number] | null, now: number): readonly Item[] {
  const inRange = range ? items.filter((each) => each.item >= range[0] && each.item <= range[1]) : items;
  switch (which) {
    case "all":
      return inRange;
    case "failed":
      return inRange.filter((each) => each.state === "failed");
    case "running":
      return inRange.filter((each) => each.state === "active");
    case "slowest":
      return inRange.toSorted((a, b) => (itemMs(b, now) ?? 0) - (itemMs(a, now) ?? 0)).slice(0, MOST_SLOW);
  }
}

interface Items {
  items: readonly Item[];
  total: number | null;
  isCut: boolean;
  error: string | null;
}

/** Return the items out of the rows; of a run whose rows are not all here, as the server counts them. */
function useItems(stepId: string): Items {
  const state = useRunState();
  const { contents } = useRunContext();
  const isAsked = state.rows.isPartial && contents.items !== undefined;
  const isLive = !isOver(state.header?.status ?? "");
  const query = useInfiniteQuery({
    queryKey: ["run", state.header?.id ?? "", "items", stepId, isLive],
    queryFn: ({ pageParam }) => contents.items?.(stepId, pageParam) ?? NO_PAGE,
    initialPageParam: 0,
    getNextPageParam: (last, all) => (all.length < MOST_PAGES ? last.next : null),
    enabled: isAsked,
    staleTime: isLive ? LIVE_MS : Number.POSITIVE_INFINITY,
    refetchInterval: isLive ? 5 * LIVE_MS : false,
  });
  const { hasNextPage, isFetchingNextPage, fetchNextPage, data } = query;
  useEffect(() => {
    if (isAsked && hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [isAsked, hasNextPage, isFetchingNextPage, fetchNextPage]);
  const entry = entryOfStep(state, stepId);
  const expected = state.steps.find(stepId)?.count ?? null;
  const own = useMemo(() => (isAsked || entry === null ? [] : itemsOf(state, entry, expected)), [state, isAsked, entry, expected]);
  if (!isAsked) return { items: own, total: expected, isCut: false, error: null };
  const items = data?.pages.flatMap((page) => page.items) ?? [];
  return { items, total: data?.pages[0]?.count ?? null, isCut: (data?.pages.at(-1)?.next ?? null) !== null && !hasNextPage, error: query.error?.message ?? null };
}

const NO_PAGE = { items: [], count: null, next: null };

interface StripProps {
  items: readonly Item[];
  chosen: number | null;
  onItem: (item: number) => void;
  onRange: (from: number, to: number) => void;
}

function Strip({ items, chosen, onItem, onRange }: StripProps): ReactNode {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const now = useRun((state) => state.now);
  const cells = useMemo(() => cellsOf(items, Math.max(1, Math.floor(width / CELL_PIXELS))), [items, width]);
  const chosenCell = chosen === null ? -1 : cells.findIndex((cell) => cell.items.some((each) => each.item === chosen));
  const [moved, setActive] = useState<number | null>(null);
  const active = moved ?? Math.max(0, chosenCell);
  const [hovered, setHovered] = useState<number | null>(null);
  const at = Math.min(active, cells.length - 1);
  const open = (cell: Cell | undefined): void => {
    const [first] = cell?.items ?? [];
    const last = cell?.items.at(-1);
    if (!first || !last) return;
    if (first === last) onItem(first.item);
    else onRange(Math.min(first.item, last.item), Math.max(first.item, last.item));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const page = Math.max(1, Math.floor(cells.length / 10));
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: cells.length - 1 }[event.key];
    if (to === undefined && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    if (to === undefined) open(cells[at]);
    else setActive(Math.max(0, Math.min(cells.length - 1, to)));
  };
  const told = cells[hovered ?? at];
  return (
    <div className="px-2 pb-1">
      <div
        ref={box}
        role="listbox"
        aria-label={t.strip}
        aria-description={t.choose}
        tabIndex={0}
        aria-activedescendant={`cell-${at}`}
        onKeyDown={onKeyDown}
        onPointerLeave={() => setHovered(null)}
        className="group flex h-7 overflow-hidden rounded border border-line"
      >
        {cells.map((cell, index) => (
          <div
            key={index}
            id={`cell-${index}`}
            role="option"
            aria-label={cellText(cell, now)}
            aria-selected={chosen !== null && cell.items.some((each) => each.item === chosen)}
            data-testid="item-cell"
            data-state={cell.state}
            data-tone={NODE_LOOKS[LOOKS[cell.state]].tone}
            className={`item-cell item-cell-${cell.state} min-w-[3px] flex-1 cursor-pointer aria-selected:outline-2 aria-selected:-outline-offset-2 aria-selected:outline-(--ink) ${index === at ? "group-focus-visible:outline-2 group-focus-visible:-outline-offset-2 group-focus-visible:outline-(--focus)" : ""} ${cells.length * 4 < width ? "border-r border-surface" : ""}`}
            onPointerEnter={() => setHovered(index)}
            onClick={() => {
              setActive(index);
              open(cell);
            }}
          />
        ))}
      </div>
      <p className="min-h-5 truncate text-ink-2">{told ? cellText(told, now) : ""}</p>
    </div>
  );
}

/** Return what a cell has: its item with its time and error, or how many items in which states. */
function cellText({ items }: Cell, now: number): string {
  const [first] = items;
  const last = items.at(-1);
  if (!first || !last) return "";
  const word = (each: Item): string => NODE_LOOKS[LOOKS[each.state]].word;
  if (items.length === 1) {
    return [t.item(first.item), word(first), duration(itemMs(first, now)), first.error && visibleName(first.error, 200)].filter(Boolean).join(" · ");
  }
  const counts = new Map<string, number>();
  for (const each of items) counts.set(word(each), (counts.get(word(each)) ?? 0) + 1);
  return `${t.cells(first.item, last.item, items.length)}: ${[...counts].map(([state, number]) => `${number} ${state}`).join(", ")}`;
}

/** The steps of one item, with the axis of the item. */
function ItemSteps({ stepId, item }: { stepId: string; item: number }): ReactNode {
  const state = useRunState();
  const names = useNodeNames();
  const { actions, selectedStep, selectStep } = useRunContext();
  const entry = entryOfStep(state, stepId);
  const isPartial = state.rows.isPartial;
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    if (!isPartial || entry === null) return;
    actions?.loadItem?.(entry, item).catch((failure: unknown) => setError(failure instanceof Error ? failure.message : String(failure)));
  }, [isPartial, entry, item, actions]);

  const rows = useMemo(() => {
    if (entry === null) return [];
    return state.steps.inOrder().filter((row) => itemIn(entry, state.steps.text(row, "scope") ?? "") === item);
  }, [state, entry, item]);
  const start = runStart(state);
  const segments = rows.map((row) => {
    const step = state.steps.step(row);
    return segmentsOf(step, state.attempts.get(step.id) ?? [], state.modelCalls.get(step.id) ?? [], state.toolCalls.get(step.id) ?? [], start, state.now);
  });
  const all = segments.flat();
  const domain = { from: Math.min(...all.map((each) => each.from)), to: Math.max(...all.map((each) => each.to)) };
  const shown = domain.to > domain.from ? domain : { from: domain.from, to: domain.from + 1 };
  if (error !== null) return <p role="alert" className="px-2 pb-2 text-red">{error}</p>;
  if (!rows.length) return <Empty>{isPartial ? texts.inspector.loading : t.none}</Empty>;
  return (
    <ul aria-label={t.steps(item)} className="px-2 pb-2">
      {rows.map((row, index) => {
        const look = NODE_LOOKS[stepState(state, row)];
        const id = state.steps.id(row);
        const nodeId = state.steps.text(row, "nodeId") ?? "";
        return (
          <li key={id}>
            <button
              type="button"
              data-testid="item-step"
              data-activation={id}
              aria-pressed={id === selectedStep}
              onClick={() => selectStep(id)}
              className="grid w-full grid-cols-[minmax(6rem,14rem)_1.75rem_4.5rem_minmax(0,1fr)] items-center rounded text-left hover:bg-raised aria-pressed:bg-accent-soft"
            >
              <bdi className="truncate">{visibleName(names.get(nodeId) ?? nodeId, 80)}</bdi>
              <span data-tone={look.tone} className="text-center text-tone" title={look.word}>
                <span aria-hidden="true">{look.icon}</span>
                <span className="sr-only">{look.word}</span>
              </span>
              <span className="pr-2 text-right tabular-nums">{duration(state.steps.number(row, "startedAt") === null ? null : workOf(state.steps, row, state.now))}</span>
              <Bars segments={segments[index] ?? []} domain={shown} hasFailed={look === NODE_LOOKS.failed} />
            </button>
          </li>
        );
      })}
      <li className="grid grid-cols-[minmax(6rem,14rem)_1.75rem_4.5rem_minmax(0,1fr)] text-[11px] text-ink-2">
        <span className="col-start-4 flex justify-between">
          <span>{duration(shown.from)}</span>
          <span>{duration(shown.to)}</span>
        </span>
      </li>
    </ul>
  );
}
