/** The messages of a conversation: pages by number in both directions, and whether newer ones have arrived. */
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { PAGE_MESSAGES, readMessages } from "../api/conversations";
import type { ConversationMessage, ConversationMessages } from "../api/replies";
import { mergeMessages } from "./merge-messages";

const POLL_MS = 4000;

export interface LoadedMessages {
  head: ConversationMessages | null;
  messages: readonly ConversationMessage[];
  hasEarlier: boolean;
  hasLater: boolean;
  /** The number of the newest message of the conversation; 0 before it is known. */
  newest: number;
  isLoading: boolean;
  isLoadingMore: boolean;
  error: Error | null;
  loadEarlier: () => Promise<unknown>;
  loadLater: () => Promise<unknown>;
  reload: () => void;
}

/** Load messages, the newest ones or those before a number. */
export function useMessages(id: string, before: number | undefined): LoadedMessages {
  const pages = useInfiniteQuery({
    queryKey: ["messages", id, before],
    queryFn: ({ pageParam, signal }) => readMessages(id, pageParam, PAGE_MESSAGES, signal),
    initialPageParam: before,
    getPreviousPageParam: (page) => page.next ?? undefined,
    getNextPageParam: (page) => (page.messages.at(-1)?.number ?? 0) + 1 + PAGE_MESSAGES,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const newest = useQuery({
    queryKey: ["newest-message", id],
    queryFn: ({ signal }) => readMessages(id, undefined, 1, signal),
    enabled: pages.isSuccess,
    refetchInterval: POLL_MS,
    staleTime: 0,
  });
  const { data, fetchNextPage, fetchPreviousPage, refetch } = pages;
  const messages = useMemo(() => mergeMessages(data?.pages.map((page) => page.messages) ?? []), [data]);
  const lastShown = messages.at(-1)?.number ?? 0;
  const newestNumber = newest.data?.messages.at(-1)?.number ?? 0;
  return {
    head: data?.pages[0] ?? null,
    messages,
    hasEarlier: pages.hasPreviousPage,
    hasLater: newestNumber > lastShown,
    newest: newestNumber,
    isLoading: pages.isPending,
    isLoadingMore: pages.isFetchingNextPage || pages.isFetchingPreviousPage,
    error: pages.error ?? newest.error,
    loadEarlier: () => fetchPreviousPage(),
    loadLater: () => fetchNextPage(),
    reload: () => void refetch(),
  };
}
