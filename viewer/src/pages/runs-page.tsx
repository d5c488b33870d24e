/** `/runs`: the list of runs. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useCallback, useEffect, useRef, useState, type ReactNode } from "react";

import { aboutQuery } from "../api/queries";
import { SelectionBar } from "../runs/cancel-selected";
import { RunFilters } from "../runs/run-filters";
import { hasFilters, runListSearch } from "../runs/run-list-search";
import { RunTable } from "../runs/run-table";
import { useRunList, type LoadedRuns } from "../runs/use-run-list";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { Commands } from "../ui/commands";
import { moment } from "../ui/format";
import { Button, Empty } from "../ui/parts";
import { TopBar } from "../ui/shell";
import { visibleName } from "../ui/visible-text";

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

  const select = useCallback((id: string, isSelected: boolean) => {
    setSelected((known) => new Set(isSelected ? [...known, id] : [...known].filter((each) => each !== id)));
  }, []);
  const { newer, loadNewer } = list;
  useEffect(() => {
    if (newer && isAtTop && !selected.size && !isPointed.current) void loadNewer().catch(() => undefined);
  }, [newer, isAtTop, selected, loadNewer]);

  const isEmpty = !list.isLoading && !list.error && !list.rows.length;
  return (
    <main data-testid="page" data-page="runs" data-ready={list.isLoading ? "0" : "1"} data-live="polling" className="flex min-h-0 flex-1 flex-col">
      <title>{`${t.title} · Easel`}</title>
      <TopBar crumbs={<h1 className="font-semibold">{t.title}</h1>} actions={mayChange || !about ? null : <span className="text-ink-2">{t.readOnly}</span>} />
      <RunFilters
        search={search}
        onChange={(change) => void navigate({ search: (now) => runListSearch({ ...now, ...change }) })}
        onClear={() => void navigate({ search: {} })}
      />
      {selected.size ? (
        <SelectionBar
          selected={selected}
          onClear={() => setSelected(NONE)}
          onDone={(done) => {
            setSelected(NONE);
            setMessage(done);
          }}
        />
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
      {isEmpty ? <NoRuns isFiltered={hasFilters(search)} list={list} /> : null}
      {list.rows.length ? (
        <div
          className="flex min-h-0 flex-1 flex-col"
          onPointerEnter={() => (isPointed.current = true)}
          onPointerLeave={() => (isPointed.current = false)}
        >
          <RunTable
            rows={list.rows}
            now={list.now}
            placeKey={JSON.stringify(search)}
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
      {visibleName(list.error?.message ?? "", 500)}
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

function NoRuns({ isFiltered, list }: { isFiltered: boolean; list: LoadedRuns }): ReactNode {
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
      <p className="mb-4 text-ink-2">{t.empty}</p>
      <Commands commands={t.commands} />
    </section>
  );
}
