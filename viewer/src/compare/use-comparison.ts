/** The comparison of two runs in pages, and the rows of both runs for their graphs and times. */
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { compareRuns, type Comparison } from "../api/copies";
import { listActivations, readRunAndGraph } from "../api/runs";
import { frameOfGraph, framesOfRun, stepsOf } from "../live/live-frames";
import { applyFrames, emptyRun, type Frame, type RunState } from "../store/run";
import type { CompareFilter } from "./compare-search";
import { rowsOf, type ComparedRow } from "./rows";

export interface LoadedComparison {
  /** The reply with the headers, the totals and the first divergence. */
  head: Comparison | null;
  rows: readonly ComparedRow[];
  names: ReadonlyMap<string, string>;
  /** How many rows the filter selects. */
  total: number;
  isLoading: boolean;
  isLoadingMore: boolean;
  hasMore: boolean;
  error: Error | null;
  loadMore: () => void;
  reload: () => void;
}

export function useComparison(a: string, b: string, filter: CompareFilter): LoadedComparison {
  const only = filter === "all" ? undefined : filter;
  const query = useInfiniteQuery({
    queryKey: ["comparison", a, b, filter],
    queryFn: ({ pageParam, signal }) => compareRuns(a, b, only, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const pages = query.data?.pages;
  const rows = useMemo(() => pages?.flatMap(rowsOf) ?? [], [pages]);
  const names = useMemo(() => new Map(pages?.flatMap((page) => Object.entries(page.names))), [pages]);
  const head = pages?.[0] ?? null;
  const { fetchNextPage, refetch } = query;
  return {
    head,
    rows,
    names,
    total: head ? totalOf(head.totals, filter) : 0,
    isLoading: query.isPending,
    isLoadingMore: query.isFetchingNextPage,
    hasMore: query.hasNextPage,
    error: query.error,
    loadMore: () => void fetchNextPage(),
    reload: () => void refetch(),
  };
}

/** Return how many steps a filter selects; `differs` includes what only one run has. */
export function totalOf(totals: Readonly<Record<string, number>>, filter: CompareFilter): number {
  const { same = 0, differs = 0, only_a: onlyA = 0, only_b: onlyB = 0 } = totals;
  switch (filter) {
    case "all":
      return same + differs + onlyA + onlyB;
    case "same":
      return same;
    case "differs":
      return differs + onlyA + onlyB;
    case "only_a":
      return onlyA;
    case "only_b":
      return onlyB;
  }
}

/** Return both runs with their graphs and steps; null while they are read. */
export function useBothRuns(a: string, b: string): { runs: readonly [RunState, RunState] | null; error: Error | null } {
  const [first, second] = [useRunState(a), useRunState(b)];
  const runs = useMemo(() => (first.data && second.data ? ([first.data, second.data] as const) : null), [first.data, second.data]);
  return { runs, error: first.error ?? second.error };
}

function useRunState(runId: string) {
  return useQuery({ queryKey: ["compared-run", runId], queryFn: ({ signal }) => loadRun(runId, signal), staleTime: Number.POSITIVE_INFINITY, gcTime: 60_000, structuralSharing: false });
}

async function loadRun(runId: string, signal: AbortSignal): Promise<RunState> {
  const { run, graph } = await readRunAndGraph(runId, signal);
  const frames: Frame[] = framesOfRun(run);
  if (graph) frames.push(frameOfGraph(graph));
  let after: string | undefined;
  do {
    const page = await listActivations(runId, after === undefined ? {} : { after }, signal);
    frames.push({ type: "steps", steps: stepsOf(page) });
    after = page.next ?? undefined;
  } while (after !== undefined);
  return applyFrames(emptyRun(), frames);
}
