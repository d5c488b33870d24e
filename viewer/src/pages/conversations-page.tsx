/** `/conversations`: the list of conversations. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useEffect, useState, type ReactNode } from "react";

import { listConversations } from "../api/conversations";
import type { ConversationRow } from "../api/replies";
import { conversationListSearch } from "../conversations/conversation-search";
import { runLook } from "../store/run-status";
import { texts } from "../texts";
import { AgentSelect } from "../ui/agent-select";
import { count } from "../ui/format";
import { Moment } from "../ui/moment";
import { Button, Empty, StateBadge } from "../ui/parts";
import { TopBar } from "../ui/shell";
import { useNow } from "../ui/use-now";
import { visibleName } from "../ui/visible-text";

const t = texts.conversations;
const route = getRouteApi("/signed-in/conversations");
const PAGE_ROWS = 50;
const REFRESH_MS = 5000;

export function ConversationsPage(): ReactNode {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const now = useNow();
  const onChange = (change: { agent?: string; q?: string }): void => {
    void navigate({ search: (known) => conversationListSearch({ ...known, ...change }) });
  };
  const list = useInfiniteQuery({
    queryKey: ["conversations", search.agent ?? "", search.q ?? ""],
    queryFn: ({ pageParam, signal }) => listConversations({ agent_id: search.agent, q: search.q, before: pageParam, limit: PAGE_ROWS }, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    staleTime: 0,
    // only a first page is read again by itself: later ones would move under the reader
    refetchInterval: ({ state }) => ((state.data?.pages.length ?? 0) <= 1 ? REFRESH_MS : false),
  });
  const rows = [...new Map(list.data?.pages.flatMap((page) => page.conversations).map((row) => [row.id, row])).values()];
  const isFiltered = search.agent !== undefined || search.q !== undefined;
  return (
    <main data-testid="page" data-page="conversations" data-ready={list.isPending ? "0" : "1"} data-live="polling" className="flex min-h-0 flex-1 flex-col">
      <title>{`${t.title} · Easel`}</title>
      <TopBar crumbs={<h1 className="font-semibold">{t.title}</h1>} />
      <div className="flex shrink-0 flex-wrap items-center gap-x-4 gap-y-2 border-b border-line px-3 py-2">
        <NameField text={search.q ?? ""} onSearch={(q) => onChange({ q })} />
        <AgentSelect label={t.agent} all={t.allAgents} value={search.agent} onChange={(agent) => onChange({ agent })} />
        {isFiltered ? <Button onClick={() => void navigate({ search: {} })}>{t.clear}</Button> : null}
      </div>
      {list.error ? (
        <p role="alert" data-tone="red" className="flex shrink-0 flex-wrap items-center gap-2 bg-tone-soft px-3 py-1.5 text-tone">
          {rows.length ? null : `${t.failed} `}
          {list.error.message}
          <Button onClick={() => void list.refetch()}>{texts.goOn}</Button>
        </p>
      ) : null}
      {list.isPending ? <Empty>{t.loading}</Empty> : null}
      {list.isSuccess && !rows.length ? <Empty>{isFiltered ? t.noMatch : t.none}</Empty> : null}
      {rows.length ? (
        <div className="min-h-0 flex-1 overflow-auto" tabIndex={0} role="region" aria-label={t.title}>
          <Rows rows={rows} now={now} />
          <p className="p-3 text-ink-2">
            {list.hasNextPage ? (
              <Button disabled={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
                {t.more}
              </Button>
            ) : (
              t.end
            )}
          </p>
        </div>
      ) : null}
    </main>
  );
}

function Rows({ rows, now }: { rows: readonly ConversationRow[]; now: number }): ReactNode {
  const { name, agent, messages, user, updated, state } = t.columns;
  const head = "px-3 py-1.5 text-left font-normal text-ink-2";
  return (
    <table aria-label={t.title} className="list w-full table-fixed border-collapse">
      <thead className="sticky top-0 z-10 bg-panel max-md:sr-only">
        <tr>
          <th scope="col" className={head}>
            {name}
          </th>
          <th scope="col" className={`${head} w-1/5`}>
            {agent}
          </th>
          <th scope="col" className={`${head} w-36`}>
            {state}
          </th>
          <th scope="col" className={`${head} w-24 text-right`}>
            {messages}
          </th>
          <th scope="col" className={`${head} w-1/6 max-lg:hidden`}>
            {user}
          </th>
          <th scope="col" className={`${head} w-48 text-right`}>
            {updated}
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <Row key={row.id} row={row} now={now} />
        ))}
      </tbody>
    </table>
  );
}

function Row({ row, now }: { row: ConversationRow; now: number }): ReactNode {
  const cell = "px-3 max-md:inline-block max-md:max-w-full max-md:pr-0 max-md:align-middle";
  const agent = visibleName(row.agent_title ?? t.deleted, 80);
  return (
    <tr data-testid="conversation-row" data-conversation-id={row.id} className="relative border-b border-line hover:bg-panel has-[a:focus-visible]:bg-accent-soft max-md:block max-md:py-1.5">
      <th scope="row" className={`${cell} truncate text-left font-medium max-md:block!`}>
        <Link to="/conversations/$conversationId" params={{ conversationId: row.id }} className="inline-block min-h-6 max-w-full truncate align-middle leading-6 after:absolute after:inset-0 after:content-[''] focus-visible:outline-offset-[-2px]">
          <bdi>{visibleName(row.name, 120) || t.unnamed}</bdi>
        </Link>
      </th>
      <td className={`${cell} truncate text-ink-2`}>
        <bdi>{agent}</bdi>
      </td>
      <td className={cell}>
        {row.active_run === null ? (
          row.error === null ? null : (
            <span title={visibleName(row.error, 500)}>
              <StateBadge look={{ ...runLook("failed"), word: t.error }} />
            </span>
          )
        ) : (
          <StateBadge look={{ ...runLook("running"), word: t.active }} />
        )}
      </td>
      <td className={`${cell} text-right text-ink-2 tabular-nums`}>
        <span className="md:hidden">{t.messages(row.messages)}</span>
        <span className="max-md:hidden">{count(row.messages)}</span>
      </td>
      <td className={`${cell} truncate text-ink-2 max-lg:hidden!`}>
        <bdi>{visibleName(row.user_id, 60)}</bdi>
      </td>
      <td className={`${cell} text-right whitespace-nowrap text-ink-2 tabular-nums`}>
        <Moment at={Date.parse(row.updated_at)} now={now} />
      </td>
    </tr>
  );
}

function NameField({ text, onSearch }: { text: string; onSearch: (text: string) => void }): ReactNode {
  const [typed, setTyped] = useState(text);
  useEffect(() => setTyped(text), [text]);
  return (
    <form
      role="search"
      className="flex min-w-0 flex-1 basis-56 items-center gap-1 sm:max-w-72"
      onSubmit={(event) => {
        event.preventDefault();
        onSearch(typed.trim());
      }}
    >
      <input
        type="search"
        aria-label={t.search}
        placeholder={t.placeholder}
        value={typed}
        maxLength={200}
        onChange={(event) => {
          setTyped(event.target.value);
          if (event.target.value === "") onSearch("");
        }}
        className="min-h-7 w-full min-w-0 rounded border border-line-strong bg-surface px-2 placeholder:text-ink-2"
      />
      <Button type="submit" aria-label={t.search}>
        ⏎
      </Button>
    </form>
  );
}
