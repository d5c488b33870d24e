/** Time: the steps as a tree grid of which only the rows in view exist, with a time axis on the right. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type PointerEvent, type ReactNode } from "react";

import { FILTERS, openKeys, openParameter, ORDERS, type Order } from "./run-search";
import { density, type Item } from "../store/items";
import type { RunState } from "../store/run";
import type { SegmentKind } from "../store/segments";
import { keysAbove, selectSteps, visibleRows, type Selection, type StepTree, type TreeRow } from "../store/step-tree";
import { texts } from "../texts";
import { useAnnounce, useAnnounceState } from "../ui/announcer";
import { Button, Empty } from "../ui/parts";
import { listShortcuts, useShortcut } from "../ui/shortcuts";
import { useWidth } from "../ui/use-width";
import { Legend, ROW_HEIGHT, segmentAt, segmentText, type Domain } from "./bars";
import { CriticalSums, SEGMENTS_OF, useCriticalPath, type CriticalKind } from "./critical-sums";
import { useFilmTime } from "./film-bar";
import { GRIDS, rowSegments, StepRow, type Columns, type RowHandlers } from "./step-row";
import { Axis, Brush } from "./time-axis";
import { domainOf, domainParameter, runStart, wholeDomain, zoomedBy } from "./time-domain";
import { useNodeNames, useRunContext, useRunState, useStepTree } from "./use-run";

const t = texts.time;
const BRUSH_PARTS = 200;
const TYPE_AHEAD_MS = 700;

function columnsFor(width: number): Columns {
  return width >= 980 ? "wide" : width >= 560 ? "compact" : "narrow";
}

type Zoom = (domain: Domain | null) => void;

export function StepsPane(): ReactNode {
  const state = useRunState();
  const tree = useStepTree();
  const { search, onSearch } = useRunContext();
  const names = useNodeNames();
  const whole = useMemo(() => wholeDomain(state), [state]);
  const domain = useMemo(() => domainOf(search.w, whole) ?? whole, [search.w, whole]);
  const pane = useRef<HTMLDivElement>(null);
  const columns = columnsFor(useWidth(pane));
  const path = useCriticalPath();
  const [kind, setKind] = useState<CriticalKind | null>(null);
  const filter = search.only ?? "all";
  const find = search.find ?? "";
  const selection = useMemo(() => selectSteps(state, tree, filter, find, names), [state, tree, filter, find, names]);
  const zoom: Zoom = (next) => onSearch({ w: domainParameter(next) }, true);

  useShortcut("+", texts.graph.zoomIn, () => zoom(zoomedBy(domain, whole, 0.5, 0.5)));
  useShortcut("-", texts.graph.zoomOut, () => zoom(zoomedBy(domain, whole, 2, 0.5)));
  useShortcut("0", t.fit, () => zoom(null));

  if (!state.steps.count) {
    return (
      <div ref={pane} className="flex min-h-0 flex-1 flex-col">
        <Empty>{t.empty}</Empty>
      </div>
    );
  }
  return (
    <div ref={pane} className="flex min-h-0 flex-1 flex-col">
      <Bar domain={domain} whole={whole} columns={columns} onZoom={zoom} selected={selection?.count ?? null} />
      {path ? <CriticalSums path={path} kind={kind} onKind={setKind} /> : null}
      <StepGrid
        state={state}
        tree={tree}
        selection={selection}
        domain={domain}
        whole={whole}
        columns={columns}
        onZoom={zoom}
        critical={path?.steps ?? NO_STEPS}
        highlighted={kind}
      />
      {columns === "narrow" || (domain.from === whole.from && domain.to === whole.to) ? null : <RunBrush state={state} domain={domain} whole={whole} onZoom={zoom} />}
      {columns === "narrow" ? null : <Legend />}
    </div>
  );
}

const NO_STEPS: readonly string[] = [];

interface BarProps {
  domain: Domain;
  whole: Domain;
  columns: Columns;
  onZoom: Zoom;
  selected: number | null;
}

/** Filters, the order of rows, the axis and the zoom. */
function Bar({ domain, whole, columns, onZoom, selected }: BarProps): ReactNode {
  const { search, onSearch } = useRunContext();
  const filter = search.only ?? "all";
  const isWhole = domain.from === whole.from && domain.to === whole.to;
  const announceState = useAnnounceState();
  useEffect(() => {
    if (selected !== null) announceState("selected", t.selectedNow(selected)); // it changes with the run too
  }, [selected, announceState]);
  return (
    <div className="flex shrink-0 flex-wrap items-center gap-x-2 gap-y-1 border-b border-line px-2 py-1">
      <div role="group" aria-label={t.filter} className="flex flex-wrap gap-1">
        {FILTERS.map((each) => (
          <Button key={each} aria-pressed={filter === each} onClick={() => onSearch({ only: each === "all" ? undefined : each })}>
            {t[each]}
          </Button>
        ))}
      </div>
      <input
        type="search"
        data-filter=""
        aria-label={t.find}
        placeholder={t.findPlaceholder}
        value={search.find ?? ""}
        onChange={(event) => onSearch({ find: event.target.value || undefined }, true)}
        className="min-h-6 w-40 min-w-0 rounded border border-line-strong bg-surface px-2 placeholder:text-ink-2"
      />
      {selected === null ? null : (
        <span className="text-ink-2">{t.shown(selected)}</span>
      )}
      <span className="flex-1" />
      <span className="flex items-center gap-1 text-ink-2">
        <span aria-hidden="true">{t.order}</span>
        <select
          aria-label={t.orderLabel}
          value={search.order ?? "canonical"}
          onChange={(event) => onSearch({ order: ORDERS.find((each) => each === event.target.value && each !== "canonical") })}
          className="min-h-6 rounded border border-line-strong bg-surface text-ink"
        >
          {ORDERS.map((each) => (
            <option key={each} value={each}>
              {t.orders[each]}
            </option>
          ))}
        </select>
      </span>
      {columns === "narrow" ? null : (
        <>
          <Button aria-pressed={search.axis === "clock"} onClick={() => onSearch({ axis: search.axis === "clock" ? undefined : "clock" })}>
            {t.clock}
          </Button>
          <div className="flex items-center gap-1">
            <Button aria-label={texts.graph.zoomIn} onClick={() => onZoom(zoomedBy(domain, whole, 0.5, 0.5))}>
              +
            </Button>
            <Button aria-label={texts.graph.zoomOut} disabled={isWhole} onClick={() => onZoom(zoomedBy(domain, whole, 2, 0.5))}>
              −
            </Button>
            <Button disabled={isWhole} onClick={() => onZoom(null)}>
              {t.fit}
            </Button>
          </div>
        </>
      )}
    </div>
  );
}

function RunBrush({ state, domain, whole, onZoom }: { state: RunState; domain: Domain; whole: Domain; onZoom: Zoom }): ReactNode {
  const start = runStart(state);
  const shown = useMemo(() => density(stepsAsItems(state), start + whole.from, start + whole.to, BRUSH_PARTS, state.now), [state, start, whole]);
  return <Brush domain={domain} whole={whole} density={shown} onZoom={onZoom} />;
}

/** Return the steps that have worked, as things that were active for a time. */
function stepsAsItems({ steps }: RunState): Item[] {
  const found: Item[] = [];
  for (let row = 0; row < steps.count; row++) {
    const createdAt = steps.number(row, "startedAt");
    if (createdAt === null) continue;
    found.push({ item: row, state: "done", createdAt, endedAt: steps.number(row, "finishedAt"), steps: 1, tokens: 0, error: null });
  }
  return found;
}

interface GridProps {
  state: RunState;
  tree: StepTree;
  selection: Selection | null;
  domain: Domain;
  whole: Domain;
  columns: Columns;
  onZoom: Zoom;
  critical: readonly string[];
  highlighted: CriticalKind | null;
}

/** A segment that the tooltip names: of a row, by its place. */
interface Named {
  key: string;
  segment: number;
}

function StepGrid({ state, tree, selection, domain, whole, columns, onZoom, critical, highlighted }: GridProps): ReactNode {
  const { selectedStep, selectStep, search, onSearch } = useRunContext();
  const names = useNodeNames();
  const announce = useAnnounce();
  const [closed, setClosed] = useState<ReadonlySet<string>>(() => new Set());
  const [focused, setFocused] = useState<string | null>(null);
  const [named, setNamed] = useState<Named | null>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const open = useMemo(() => openKeys(search.x), [search.x]);
  const order = search.order ?? "canonical";

  // What lies above a selected step is open as well, whatever the address says.
  const [revealed, setRevealed] = useState<string | null>(null);
  const [above, setAbove] = useState<ReadonlySet<string>>(() => new Set());
  if (selectedStep !== null && selectedStep !== revealed) {
    const row = state.steps.rowOf(selectedStep);
    if (row !== null) {
      setRevealed(selectedStep);
      setAbove(new Set(keysAbove(state, tree, row)));
      setFocused(`s${selectedStep}`);
    }
  }
  const opened = useMemo(() => new Set([...open, ...above]), [open, above]);
  const rows = useMemo(() => visibleRows(state, tree, opened, { order: order satisfies Order, selection, closed }), [state, tree, opened, order, selection, closed]);
  const indexes = useMemo(() => new Map(rows.map((row, index) => [row.key, index])), [rows]);
  const path = useMemo(() => new Set(critical), [critical]);
  const kinds = useMemo(() => (highlighted === null ? null : new Set<SegmentKind>(SEGMENTS_OF[highlighted])), [highlighted]);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 12,
    scrollPaddingStart: ROW_HEIGHT,
  });
  const focusedIndex = focused === null ? undefined : indexes.get(focused);

  useEffect(() => {
    const index = selectedStep === null ? undefined : indexes.get(`s${selectedStep}`);
    const top = scroller.current?.scrollTop ?? 0;
    const isInView = index !== undefined && (index + 1) * ROW_HEIGHT > top + ROW_HEIGHT && (index + 2) * ROW_HEIGHT < top + (scroller.current?.clientHeight ?? 0);
    if (index !== undefined && !isInView) virtual.scrollToIndex(index, { align: "center" });
    // Only a new selection scrolls: a reader who has scrolled on must not be pulled back.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [selectedStep, revealed]);

  const toggle = (row: TreeRow, isOpen = !row.isOpen): void => {
    const changed = (keys: ReadonlySet<string>, has: boolean): Set<string> => {
      const next = new Set(keys);
      if (has) next.add(row.key);
      else next.delete(row.key);
      return next;
    };
    if (selection && (row.kind === "item" || row.entry !== null)) {
      setClosed(changed(closed, !isOpen));
      return;
    }
    const next = changed(opened, isOpen);
    const parameter = openParameter(next);
    const written = openKeys(parameter);
    setAbove(new Set([...next].filter((key) => !written.has(key)))); // an address has room for some hundred rows
    onSearch({ x: parameter }, true);
  };
  const focus = (index: number): void => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, index))];
    if (!row) return;
    setNamed(null);
    setFocused(row.key);
    virtual.scrollToIndex(indexes.get(row.key) ?? 0, { align: "auto" });
  };
  const choose = (row: TreeRow): void => {
    setFocused(row.key);
    if (row.kind === "item") toggle(row);
    else if (row.kind === "step") selectStep(state.steps.id(row.row));
    else onSearch({ step: state.steps.id(row.row), tab: row.kind === "attempt" ? "attempts" : row.kind === "call" ? "model" : "tools" });
  };
  const walk = (row: TreeRow, by: 1 | -1): boolean => {
    const segments = rowSegments(state, tree, row);
    const next = (named?.key === row.key ? named.segment : -1) + by;
    const segment = segments[next];
    if (!segment) {
      setNamed(null);
      return next < 0 && named?.key === row.key;
    }
    setNamed({ key: row.key, segment: next });
    announce(segmentText(segment));
    return true;
  };
  const right = (row: TreeRow, index: number): void => {
    if (row.isOpen === false) toggle(row, true);
    else if (!walk(row, 1) && row.isOpen) focus(index + 1);
  };
  const left = (row: TreeRow, index: number): void => {
    if (named?.key === row.key && walk(row, -1)) return;
    if (row.isOpen) toggle(row, false);
    else if (row.parentKey) focus(indexes.get(row.parentKey) ?? index);
  };
  const typed = useTypeAhead((text) => {
    const from = focusedIndex ?? -1;
    const all = [...rows.slice(from + 1), ...rows.slice(0, from + 1)];
    const found = all.find((row) => nameOf(state, row, names).toLowerCase().startsWith(text));
    if (found) focus(indexes.get(found.key) ?? 0);
  });
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
    const index = focusedIndex ?? -1;
    const row = rows[index];
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? ROW_HEIGHT) / ROW_HEIGHT) - 2);
    const actions: Record<string, () => void> = {
      ArrowDown: () => focus(index + 1),
      ArrowUp: () => focus(index - 1),
      PageDown: () => focus(index + page),
      PageUp: () => focus(index - page),
      Home: () => focus(0),
      End: () => focus(rows.length - 1),
      ArrowRight: () => row && right(row, index),
      ArrowLeft: () => row && left(row, index),
      Enter: () => row && choose(row),
      " ": () => row && row.isOpen !== null && toggle(row),
    };
    const type = typed.accepts(event.key, event.shiftKey) ? () => typed.add(event.key) : undefined;
    const action = typed.isTyping() ? (type ?? actions[event.key]) : (actions[event.key] ?? type);
    if (!action) return;
    event.preventDefault();
    action();
  };
  useWheelZoom(scroller, columns !== "narrow", (factor, point) => onZoom(zoomedBy(domain, whole, factor, point)));

  const onPointerMove = (event: PointerEvent): void => {
    const target = event.target instanceof Element ? event.target : null;
    const row = rows[indexes.get(target?.closest("[role=row]")?.id.slice("row-".length) ?? "") ?? -1];
    const box = target?.closest("[data-bars]")?.getBoundingClientRect();
    if (!row || !box) {
      if (named) setNamed(null);
      return;
    }
    const perPixel = (domain.to - domain.from) / box.width;
    const segment = segmentAt(rowSegments(state, tree, row), domain.from + (event.clientX - box.left) * perPixel, 3 * perPixel);
    if (segment === null) setNamed(null);
    else if (named?.key !== row.key || named.segment !== segment) setNamed({ key: row.key, segment });
  };

  const handlers = useRef<RowHandlers>({ choose, toggle, openItems: () => undefined });
  useEffect(() => {
    const openItems = (row: TreeRow): void => onSearch({ items: state.steps.id(row.row), item: undefined, which: undefined });
    handlers.current = { choose, toggle, openItems };
  });

  if (!rows.length) return <Empty>{t.none}</Empty>;
  const items = virtual.getVirtualItems();
  return (
    <div
      ref={scroller}
      role="treegrid"
      aria-label={t.grid}
      aria-rowcount={rows.length + 1}
      aria-colcount={columns === "wide" ? 6 : columns === "compact" ? 5 : 4}
      aria-activedescendant={focused !== null && isRendered(items, focusedIndex) ? `row-${focused}` : undefined}
      tabIndex={0}
      onKeyDown={onKeyDown}
      onPointerMove={onPointerMove}
      onPointerLeave={() => setNamed(null)}
      onFocus={() => {
        if (focusedIndex === undefined) focus(0);
      }}
      className="group min-h-0 flex-1 overflow-auto"
    >
      <HeadRow state={state} domain={domain} whole={whole} columns={columns} onZoom={onZoom} />
      <div role="rowgroup" style={{ height: virtual.getTotalSize(), position: "relative" }}>
        {items.map((item) => {
          const row = rows[item.index];
          return row ? (
            <StepRow
              key={row.key}
              row={row}
              index={item.index}
              top={item.start}
              state={state}
              tree={tree}
              domain={domain}
              columns={columns}
              isFocused={row.key === focused}
              isSelected={row.kind === "step" && state.steps.id(row.row) === selectedStep}
              isCritical={row.kind === "step" && path.has(state.steps.id(row.row))}
              named={named?.key === row.key ? named.segment : null}
              highlighted={kinds}
              handlers={handlers}
            />
          ) : null;
        })}
        {columns === "narrow" ? null : <FilmCursor domain={domain} columns={columns} />}
        {named ? <Tooltip named={named} row={rows[indexes.get(named.key) ?? -1]} top={(indexes.get(named.key) ?? 0) * ROW_HEIGHT} state={state} tree={tree} /> : null}
      </div>
    </div>
  );
}

/** The figures of a segment, below its row. */
function Tooltip({ named, row, top, state, tree }: { named: Named; row: TreeRow | undefined; top: number; state: RunState; tree: StepTree }): ReactNode {
  const segment = row && rowSegments(state, tree, row)[named.segment];
  if (!segment) return null;
  return (
    <div
      role="presentation"
      data-testid="segment-tooltip"
      className="pointer-events-none absolute right-2 z-20 rounded border border-line-strong bg-surface px-2 py-1 shadow-md"
      style={{ top: top + ROW_HEIGHT }}
    >
      {segmentText(segment)}
      {segment.firstToken === undefined ? "" : ` · ${t.firstToken(segment.firstToken - segment.from)}`}
    </div>
  );
}

/** The time of the film, as a line through all rows. */
function FilmCursor({ domain, columns }: { domain: Domain; columns: Columns }): ReactNode {
  const time = useFilmTime();
  if (time === null || time < domain.from || time > domain.to) return null;
  const percent = (100 * (time - domain.from)) / (domain.to - domain.from);
  return (
    <div aria-hidden="true" className={`pointer-events-none absolute inset-0 grid ${GRIDS[columns]} px-2`}>
      <div className="relative col-start-[-2]" data-testid="film-cursor">
        <span className="absolute inset-y-0 w-0.5 bg-red" style={{ left: `${percent}%` }} />
      </div>
    </div>
  );
}

function nameOf(state: RunState, row: TreeRow, names: ReadonlyMap<string, string>): string {
  if (row.kind === "item") return t.item(row.item ?? 0);
  const nodeId = state.steps.text(row.row, "nodeId") ?? "";
  return names.get(nodeId) ?? nodeId;
}

function isRendered(items: readonly { index: number }[], index: number | undefined): boolean {
  return items.some((item) => item.index === index);
}

interface TypeAhead {
  isTyping: () => boolean;
  accepts: (key: string, isShifted: boolean) => boolean;
  add: (key: string) => void;
}

/** Collect letters that are typed one after the other. One that is a key of the page begins a name only with Shift. */
function useTypeAhead(onText: (text: string) => void): TypeAhead {
  const text = useRef("");
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  return {
    isTyping: () => text.current !== "",
    accepts: (key, isShifted) => {
      if (!/^[\p{L}\p{N}_: ]$/u.test(key)) return false;
      return text.current !== "" || isShifted || !listShortcuts().some((each) => each.key === key);
    },
    add: (key) => {
      clearTimeout(timer.current);
      timer.current = setTimeout(() => {
        text.current = "";
      }, TYPE_AHEAD_MS);
      text.current += key.toLowerCase();
      onText(text.current);
    },
  };
}

/** Zoom with Ctrl and the wheel at the pointer; the browser must not zoom the page as well. */
function useWheelZoom(scroller: { readonly current: HTMLElement | null }, isOn: boolean, onZoom: (factor: number, point: number) => void): void {
  const latest = useRef(onZoom);
  useEffect(() => {
    latest.current = onZoom;
  });
  useEffect(() => {
    const element = scroller.current;
    if (!element || !isOn) return;
    const onWheel = (event: WheelEvent): void => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const box = element.querySelector("[data-testid=ruler]")?.getBoundingClientRect();
      const point = box ? Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) : 0.5;
      latest.current(event.deltaY > 0 ? 1.25 : 0.8, point);
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [scroller, isOn]);
}

interface HeadProps {
  state: RunState;
  domain: Domain;
  whole: Domain;
  columns: Columns;
  onZoom: Zoom;
}

function HeadRow({ state, domain, whole, columns, onZoom }: HeadProps): ReactNode {
  const { search } = useRunContext();
  return (
    <div role="rowgroup" className="sticky top-0 z-10">
      <div role="row" aria-rowindex={1} className={`grid ${GRIDS[columns]} h-7 items-center border-b border-line bg-panel px-2 text-ink-2`}>
        <span role="columnheader" className="relative">
          {t.name}
          {columns === "narrow" ? null : <ColumnGrip />}
        </span>
        <span role="columnheader">{columns === "wide" ? t.state : <span className="sr-only">{t.state}</span>}</span>
        <span role="columnheader" className="text-right">
          {t.duration}
        </span>
        <span role="columnheader" className="pr-2 text-right">
          {t.tokens}
        </span>
        {columns === "wide" ? (
          <span role="columnheader" className="pr-2 text-right">
            {t.cost}
          </span>
        ) : null}
        {columns === "narrow" ? null : (
          <span role="columnheader" className="min-w-0">
            <span className="sr-only">{t.axis}</span>
            <Axis domain={domain} whole={whole} isShort={columns === "compact"} clockStart={search.axis === "clock" ? runStart(state) : null} onZoom={onZoom} />
          </span>
        )}
      </div>
    </div>
  );
}

/** The right edge of the first column, which is dragged to make it wider. */
function ColumnGrip(): ReactNode {
  const grip = useRef<HTMLSpanElement>(null);
  const start = useRef<{ x: number; width: number } | null>(null);
  return (
    <span
      ref={grip}
      aria-hidden="true"
      title={t.resize}
      className="absolute inset-y-0 -right-1 w-2 cursor-col-resize touch-none hover:bg-line-strong"
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        start.current = { x: event.clientX, width: event.currentTarget.parentElement?.clientWidth ?? 0 };
      }}
      onPointerMove={(event) => {
        if (!start.current) return;
        const width = Math.max(90, Math.min(700, start.current.width + event.clientX - start.current.x));
        grip.current?.closest<HTMLElement>("[role=treegrid]")?.style.setProperty("--name-width", `${width}px`);
      }}
      onPointerUp={() => {
        start.current = null;
      }}
    />
  );
}
