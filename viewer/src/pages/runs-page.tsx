/** `/runs`: the list of runs. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useCallback, useEffect, useRef, useState, type ReactNode } from "react";

import { findRuns } from "../api/lookups";
import { aboutQuery } from "../api/queries";
import { SelectionBar } from "../runs/cancel-selected";
import { ExportIds } from "../runs/export-ids";
import { ListMenus } from "../runs/list-menus";
import { RunFilters } from "../runs/run-filters";
import { filtersOf, hasFilters, runListSearch, type RunListChange } from "../runs/run-list-search";
import { RunTable } from "../runs/run-table";
import { StartExample } from "../runs/start-example";
import { useRunList, type LoadedRuns } from "../runs/use-run-list";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { Commands } from "../ui/commands";
import { moment } from "../ui/format";
import { Button, Empty } from "../ui/parts";
import { isHexId } from "../ui/search-values";
import { TopBar } from "../ui/shell";
import { useShortcut } from "../ui/shortcuts";

const t = texts.runs;
const route = getRouteApi("/signed-in/runs");
const NONE: ReadonlySet<string> = new Set();

export function RunsPage(): ReactNode {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const announce = useAnnounce();
  const { data: about } = useQuery({ ...aboutQuery, enabled: false });
  const list = useRunList(search);
  const [selected, setSelected] = useState(NONE);
  const [message, setMessage] = useState<string | null>(null);
  const [isAtTop, setAtTop] = useState(true);
  const isPointed = useRef(false);
  const mayChange = about?.may?.includes("change") ?? false;

  const select = useCallback((ids: readonly string[], isSelected: boolean) => {
    setSelected((known) => new Set(isSelected ? [...known, ...ids] : [...known].filter((each) => !ids.includes(each))));
  }, []);
  useShortcut("Escape", t.keys.unselect, () => setSelected(NONE), selected.size > 0);
  const onChange = useCallback((change: RunListChange): void => void navigate({ search: (now) => runListSearch({ ...now, ...change }) }), [navigate]);
  /** Open the run whose id was sent; list what has the text else. */
  const onSearch = async (q: string): Promise<void> => {
    const found = isHexId(q) ? await findRuns({ q, limit: 1 }).catch(() => null) : null;
    if (found?.runs[0]?.id === q) await navigate({ to: "/runs/$runId", params: { runId: q } });
    else onChange({ q });
  };
  const { newer, loadNewer } = list;
  useEffect(() => {
    if (newer && isAtTop && !selected.size && !isPointed.current) void loadNewer().catch(() => undefined);
  }, [newer, isAtTop, selected, loadNewer]);

  const isEmpty = !list.isLoading && !list.error && !list.rows.length;
  return (
    <main data-testid="page" data-page="runs" data-ready={list.isLoading ? "0" : "1"} data-live={search.live ?? "polling"} className="flex min-h-0 flex-1 flex-col">
      <title>{`${t.title} · Easel`}</title>
      <TopBar
        crumbs={<h1 className="font-semibold">{t.title}</h1>}
        actions={
          <>
            {mayChange || !about ? null : <span className="truncate text-ink-2">{t.readOnly}</span>}
            <ListMenus search={search} onLive={(isLive) => onChange({ live: isLive ? undefined : "off" })} onView={(view) => void navigate({ search: view })} />
          </>
        }
      />
      <RunFilters search={search} onChange={onChange} onSearch={(q) => void onSearch(q)} onClear={() => void navigate({ search: ({ live }) => (live ? { live } : {}) })} />
      {selected.size ? (
        <div className="flex shrink-0 items-stretch">
          <div className="min-w-0 flex-1">
            <SelectionBar
              selected={selected}
              onClear={() => setSelected(NONE)}
              onDone={(done) => {
                setSelected(NONE);
                setMessage(done);
              }}
            />
          </div>
          <div className="flex items-center border-b border-line bg-accent-soft px-3">
            <ExportIds ids={[...selected]} />
          </div>
        </div>
      ) : null}
      {message === null ? null : (
        <p className="flex shrink-0 items-center gap-2 bg-panel px-3 py-1">
          {message}
          <Button aria-label={texts.close} onClick={() => setMessage(null)}>
            ✕
          </Button>
        </p>
      )}
      {list.error ? <Failure list={list} /> : null}
      {newer ? (
        <p className="flex shrink-0 items-center justify-center gap-2 bg-accent-soft py-1">
          <span>{t.newer(newer)}</span>
          <Button onClick={() => void loadNewer().then(() => announce(t.newer(newer)))}>{t.showNewer}</Button>
        </p>
      ) : null}
      {list.isLoading ? <Empty>{t.loading}</Empty> : null}
      {isEmpty ? <NoRuns isFiltered={hasFilters(search)} list={list} mayChange={mayChange} /> : null}
      {list.rows.length ? (
        <div
          className="flex min-h-0 flex-1 flex-col"
          onPointerEnter={() => (isPointed.current = true)}
          onPointerLeave={() => (isPointed.current = false)}
        >
          <RunTable
            rows={list.rows}
            now={list.now}
            placeKey={JSON.stringify(filtersOf(search))}
            selected={selected}
            onSelect={mayChange ? select : null}
            onAtTop={setAtTop}
          >
            <More list={list} />
          </RunTable>
        </div>
      ) : null}
    </main>
  );
}

function Failure({ list }: { list: LoadedRuns }): ReactNode {
  return (
    <p role="alert" data-tone="red" className="flex shrink-0 items-center gap-2 bg-tone-soft px-3 py-1.5 text-tone">
      {list.rows.length ? null : `${t.failed} `}
      {list.error?.message}
      <Button onClick={list.reload}>{texts.goOn}</Button>
    </p>
  );
}

function More({ list }: { list: LoadedRuns }): ReactNode {
  return (
    <p className="flex items-center gap-2 p-3 text-ink-2">
      {list.searchedUntil === null ? null : t.searchedUntil(moment(Date.parse(list.searchedUntil)))}
      {list.hasMore ? (
        <Button disabled={list.isLoadingMore} onClick={list.loadMore}>
          {list.searchedUntil === null ? t.more : t.searchOn}
        </Button>
      ) : (
        t.end
      )}
    </p>
  );
}

function NoRuns({ isFiltered, list, mayChange }: { isFiltered: boolean; list: LoadedRuns; mayChange: boolean }): ReactNode {
  if (isFiltered) {
    return (
      <>
        <Empty>{t.noMatch}</Empty>
        {list.hasMore ? <More list={list} /> : null}
      </>
    );
  }
  return (
    <section className="mx-auto w-full max-w-2xl p-6 sm:pt-14">
      <h2 className="mb-2 text-lg font-semibold">{t.emptyTitle}</h2>
      <StartExample mayChange={mayChange} />
      <p className="mb-4 text-ink-2">{t.empty}</p>
      <Commands commands={t.commands} />
    </section>
  );
}
