/** The list of runs: pages by key, states that are read every two seconds, and how many runs are newer. */
import { useInfiniteQuery, useQuery, useQueryClient, type InfiniteData } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";

import type { RunList, RunRow } from "../api/replies";
import { listRuns, readRunStates } from "../api/runs";
import { serverNow } from "../api/server-clock";
import { changingIds, mergeRuns } from "./merge-runs";
import { apiFilters, filtersOf, type RunListSearch } from "./run-list-search";

const POLL_MS = 2000;

type Pages = InfiniteData<RunList, string | undefined>;

export interface LoadedRuns {
  rows: readonly RunRow[];
  /** The server's time of the last reply. */
  now: number;
  newer: number;
  isLoading: boolean;
  isLoadingMore: boolean;
  hasMore: boolean;
  /** How far a search has come that has more to read. */
  searchedUntil: string | null;
  /** Why nothing can be shown, or nothing new arrives. */
  error: Error | null;
  loadMore: () => void;
  loadNewer: () => Promise<void>;
  reload: () => void;
}

export function useRunList(search: RunListSearch): LoadedRuns {
  const client = useQueryClient();
  const isLive = search.live !== "off";
  const written = JSON.stringify(filtersOf(search));
  const filters = useMemo(() => apiFilters(JSON.parse(written) as RunListSearch, serverNow()), [written]);
  const key = useMemo(() => ["runs", written] as const, [written]);

  const list = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam, signal }) => listRuns(filters, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    staleTime: Number.POSITIVE_INFINITY,
    // an empty list has no row after which runs are newer
    refetchInterval: ({ state }) => (isLive && state.data?.pages.every((page) => !page.runs.length && !page.next) ? POLL_MS : false),
  });
  const pages = list.data?.pages;
  const rows = useMemo(() => mergeRuns(pages?.map((page) => page.runs) ?? [], new Map()), [pages]);
  const first = rows[0]?.id;

  const states = useQuery({
    queryKey: ["run-states", written],
    queryFn: async ({ signal }) => {
      const reply = await readRunStates(changingIds(rows), filters, first, signal);
      const byId = new Map(reply.runs.map((run) => [run.id, run]));
      client.setQueryData<Pages>(
        key,
        (known) => known && { ...known, pages: known.pages.map((page) => ({ ...page, runs: mergeRuns([page.runs], byId) })) },
      );
      return { newer: reply.newer ?? 0, now: reply.now, after: first };
    },
    enabled: isLive && first !== undefined,
    refetchInterval: POLL_MS,
    staleTime: 0,
  });

  const loadNewer = useCallback(async (): Promise<void> => {
    const page = await listRuns(filters);
    client.setQueryData<Pages>(key, (known) => withNewer(known, page));
    client.setQueryData(["run-states", written], { newer: 0, now: page.now ?? 0, after: page.runs[0]?.id });
  }, [client, filters, key, written]);

  const last = pages?.at(-1);
  const { fetchNextPage, refetch } = list;
  return {
    rows,
    now: Math.max(states.data?.now ?? 0, pages?.[0]?.now ?? 0),
    newer: isLive && states.data?.after === first ? (states.data?.newer ?? 0) : 0,
    isLoading: list.isPending,
    isLoadingMore: list.isFetchingNextPage,
    hasMore: list.hasNextPage,
    searchedUntil: last?.next ? (last.searched_until ?? null) : null,
    error: list.error ?? states.error,
    loadMore: () => void fetchNextPage(),
    loadNewer,
    reload: () => void refetch(),
  };
}

/** Return the pages with the rows of a newer first page before them; without an overlap, that page alone. */
export function withNewer(known: Pages | undefined, page: RunList): Pages {
  const alone: Pages = { pages: [page], pageParams: [undefined] };
  const [firstPage, ...others] = known?.pages ?? [];
  const firstId = firstPage?.runs[0]?.id;
  const at = page.runs.findIndex((run) => run.id === firstId);
  if (!known || !firstPage || at < 0) return alone;
  return { ...known, pages: [{ ...firstPage, runs: [...page.runs.slice(0, at), ...firstPage.runs] }, ...others] };
}
