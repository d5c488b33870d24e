/** The turns of a conversation as they are now, and what an agent offers to begin one. */
import { queryOptions, useInfiniteQuery, useQuery, useQueryClient, type QueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef } from "react";

import { listConversationRuns, listVersions, readAgent, readConversation, readVersion, type AgentHead, type VersionList } from "../api/play";
import { ApiError } from "../api/request";
import { isOver } from "../store/run-status";
import { beginOf, beginOfDocument, type Begin } from "./begin";
import { turnsOf, type Turn } from "./turns";

const ACTIVE_MS = 2000;
const IDLE_MS = 10_000; // someone else may continue the conversation

const keys = {
  agent: (id: string) => ["play", "agent", id] as const,
  versions: (id: string) => ["play", "versions", id] as const,
  runs: (id: string) => ["play", "runs", id] as const,
  messages: (id: string) => ["play", "messages", id] as const,
};

export interface LoadedConversation {
  turns: readonly Turn[];
  isLoading: boolean;
  /** Why there is nothing, or nothing new. */
  error: Error | null;
  hasEarlier: boolean;
  isLoadingEarlier: boolean;
  loadEarlier: () => void;
  /** Read it again, after something was done. */
  refresh: () => Promise<void>;
}

const NO_TURNS: readonly Turn[] = [];

/** Follow a conversation; an empty one if the id is undefined. */
export function useConversation(id: string | undefined): LoadedConversation {
  const client = useQueryClient();
  const enabled = id !== undefined;
  const key = id ?? "";
  const runs = useInfiniteQuery({
    queryKey: keys.runs(key),
    queryFn: ({ pageParam, signal }) => listConversationRuns(key, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    enabled,
    staleTime: 0,
    refetchInterval: ({ state }) => (state.data?.pages.some((page) => page.runs.some((run) => !isOver(run.status))) ? ACTIVE_MS : IDLE_MS),
  });
  const messages = useInfiniteQuery({
    queryKey: keys.messages(key),
    queryFn: ({ pageParam, signal }) => readConversation(key, pageParam, signal),
    initialPageParam: undefined as number | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    enabled,
    staleTime: 0,
  });
  const rows = useMemo(() => runs.data?.pages.flatMap((page) => page.runs), [runs.data]);
  useMessagesOf(client, key, rows?.map((run) => `${run.id} ${run.status}`).join());

  const turns = useMemo(() => {
    if (!rows || !messages.data) return NO_TURNS;
    const inOrder = messages.data.pages.toReversed().flatMap((page) => page.messages);
    return turnsOf(inOrder, rows, messages.hasNextPage);
  }, [rows, messages.data, messages.hasNextPage]);

  const { fetchNextPage: moreRuns } = runs;
  const { fetchNextPage: moreMessages } = messages;
  const loadEarlier = useCallback(() => void Promise.all([moreRuns(), moreMessages()]), [moreRuns, moreMessages]);
  const refresh = useCallback(() => refreshConversation(client, key), [client, key]);
  return {
    turns: enabled ? turns : NO_TURNS,
    isLoading: enabled && (runs.isPending || messages.isPending),
    error: enabled ? (messages.error ?? runs.error) : null,
    hasEarlier: messages.hasNextPage,
    isLoadingEarlier: messages.isFetchingNextPage,
    loadEarlier,
    refresh,
  };
}

/** Read the messages again whenever a run of the conversation is new or has another status. */
function useMessagesOf(client: QueryClient, id: string, statuses: string | undefined): void {
  const known = useRef<{ id: string; statuses: string } | null>(null);
  useEffect(() => {
    if (statuses === undefined) return;
    const before = known.current;
    known.current = { id, statuses };
    if (before?.id === id && before.statuses !== statuses) void client.invalidateQueries({ queryKey: keys.messages(id) });
  }, [client, id, statuses]);
}

export async function refreshConversation(client: QueryClient, id: string): Promise<void> {
  if (!id) return;
  await Promise.all([
    client.invalidateQueries({ queryKey: keys.runs(id), refetchType: "all" }),
    client.invalidateQueries({ queryKey: keys.messages(id), refetchType: "all" }),
  ]);
}

/** The draft may change at any moment in another tab, so it is read again whenever it is shown. */
const agentQuery = (id: string) => queryOptions<AgentHead>({ queryKey: keys.agent(id), queryFn: ({ signal }) => readAgent(id, signal), staleTime: 0 });

const versionsQuery = (id: string) =>
  queryOptions<VersionList>({ queryKey: keys.versions(id), queryFn: ({ signal }) => listVersions(id, signal), staleTime: 0 });

/** Read agent and versions again: after a start, which may have made a version of the draft, and after an edit. */
export async function refreshAgent(client: QueryClient, id: string): Promise<void> {
  await Promise.all([client.invalidateQueries({ queryKey: keys.agent(id) }), client.invalidateQueries({ queryKey: keys.versions(id) })]);
}

export interface LoadedAgent {
  head: AgentHead | null;
  versions: VersionList["versions"];
  error: ApiError | null;
}

const NO_VERSIONS: VersionList["versions"] = [];

export function useAgent(id: string): LoadedAgent {
  const head = useQuery(agentQuery(id));
  const versions = useQuery(versionsQuery(id));
  const error = head.error ?? versions.error;
  return {
    head: head.data ?? null,
    versions: versions.data?.versions ?? NO_VERSIONS,
    error: error === null || error instanceof ApiError ? error : new ApiError(0, "failed", error.message),
  };
}

/** Return what a version begins with, null until it is known; the draft's if the id is undefined. */
export function useBegin(agentId: string, head: AgentHead | null, version: string | undefined): Begin | null {
  const document = useQuery({
    queryKey: ["play", "version", agentId, version ?? ""],
    queryFn: ({ signal }) => readVersion(agentId, version ?? "", signal),
    enabled: version !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
  });
  return useMemo(() => {
    if (version === undefined) return head && beginOf(head.begin);
    return document.data ? beginOfDocument(document.data.document) : null;
  }, [version, head, document.data]);
}
