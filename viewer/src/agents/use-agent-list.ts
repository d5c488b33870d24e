/** The list of agents, in pages by key; what it shows of runs is read again now and then. */
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { listAgentPage, listTags } from "../api/agents";
import type { AgentRow } from "../api/replies";
import { agentFilters, type AgentListSearch } from "./agent-search";

const REFRESH_MS = 15_000;

export interface LoadedAgents {
  rows: readonly AgentRow[];
  /** The tags of all agents, and the one that is chosen. */
  tags: readonly string[];
  isPending: boolean;
  isLoadingMore: boolean;
  hasMore: boolean;
  error: Error | null;
  loadMore: () => void;
  reload: () => void;
}

export function useAgentList(search: AgentListSearch): LoadedAgents {
  const list = useInfiniteQuery({
    queryKey: ["agents", search],
    queryFn: ({ pageParam, signal }) => listAgentPage({ ...agentFilters(search), after: pageParam }, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    staleTime: 0,
    refetchInterval: ({ state }) => ((state.data?.pages.length ?? 0) > 3 ? false : REFRESH_MS), // many pages are not read again and again
  });
  const pages = list.data?.pages;
  const rows = useMemo(() => [...new Map(pages?.flatMap((page) => page.agents).map((agent) => [agent.id, agent])).values()], [pages]);
  const { data: inUse } = useQuery({ queryKey: ["agents", "tags"], queryFn: ({ signal }) => listTags(signal) });
  const tags = useMemo(() => [...new Set([...(inUse ?? []), ...(search.tag ? [search.tag] : [])])].sort(), [inUse, search.tag]);
  const { fetchNextPage, refetch } = list;
  return {
    rows,
    tags,
    isPending: list.isPending,
    isLoadingMore: list.isFetchingNextPage,
    hasMore: list.hasNextPage,
    error: list.error,
    loadMore: () => void fetchNextPage(),
    reload: () => void refetch(),
  };
}
