/** `/conversations/{id}`: the messages of a conversation, the newest at the end. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useLayoutEffect, useRef, type ReactNode } from "react";

import { listAgents } from "../api/runs";
import { ApiError } from "../api/request";
import { Message } from "../conversations/message";
import { useMessages, type LoadedMessages } from "../conversations/use-messages";
import { texts } from "../texts";
import { Button, CopyButton, Empty } from "../ui/parts";
import { TopBar } from "../ui/shell";
import { visibleName } from "../ui/visible-text";

const t = texts.conversation;
const route = getRouteApi("/signed-in/conversations/$conversationId");

export function ConversationPage(): ReactNode {
  const { conversationId } = route.useParams();
  const { before } = route.useSearch();
  return <OneConversation key={`${conversationId} ${before}`} id={conversationId} before={before === undefined ? undefined : Number(before)} />;
}

function OneConversation({ id, before }: { id: string; before: number | undefined }): ReactNode {
  const loaded = useMessages(id, before);
  const { head, error, isLoading } = loaded;
  const isMissing = !head && error instanceof ApiError && [400, 404].includes(error.status);
  const name = visibleName(head?.name ?? "", 120) || (head ? texts.conversations.unnamed : t.title);
  return (
    <main
      data-testid="page"
      data-page={isMissing ? "missing" : "conversation"}
      data-ready={isLoading ? "0" : "1"}
      data-live={before === undefined ? "polling" : "off"}
      className="flex min-h-0 flex-1 flex-col"
    >
      <title>{`${isMissing ? texts.missing.title : name} · Easel`}</title>
      <TopBar
        crumbs={
          <Link to="/conversations" className="inline-block min-h-6 leading-6 text-accent underline">
            {t.back}
          </Link>
        }
      />
      {isMissing ? (
        <div className="p-4">
          <p role="alert" className="mb-3">
            {t.missing(visibleName(id, 64))}
          </p>
          <Link to="/conversations" className="inline-block min-h-6 text-accent underline">
            {t.missingLink}
          </Link>
        </div>
      ) : null}
      {error && !isMissing ? (
        <p role="alert" data-tone="red" className="flex shrink-0 flex-wrap items-center gap-2 bg-tone-soft px-3 py-1.5 text-tone">
          {error.message}
          <Button onClick={loaded.reload}>{texts.goOn}</Button>
        </p>
      ) : null}
      {isLoading ? <Empty>{texts.conversations.loading}</Empty> : null}
      {head ? (
        <>
          <header className="flex shrink-0 flex-wrap items-center gap-x-3 gap-y-1 border-b border-line px-3 py-2">
            <h1 className="min-w-0 truncate text-base font-semibold">
              <bdi>{name}</bdi>
            </h1>
            <AgentName id={head.agent_id} />
            <span className="flex items-center font-mono text-xs text-ink-2">
              {head.id}
              <CopyButton text={() => head.id} label={t.copyId} />
            </span>
            <Link to="/runs" search={{ conversation: head.id }} className="inline-block min-h-6 leading-6 text-accent underline">
              {t.runs}
            </Link>
          </header>
          <Messages id={id} loaded={loaded} isFromNewest={before === undefined} />
        </>
      ) : null}
    </main>
  );
}

function AgentName({ id }: { id: string }): ReactNode {
  const { data } = useQuery({ queryKey: ["agents"], queryFn: ({ signal }) => listAgents(signal) });
  const title = data?.agents.find((agent) => agent.id === id)?.title;
  return title === undefined ? null : (
    <span className="min-w-0 truncate text-ink-2">
      <bdi>{visibleName(title, 80)}</bdi>
    </span>
  );
}

function Messages({ id, loaded, isFromNewest }: { id: string; loaded: LoadedMessages; isFromNewest: boolean }): ReactNode {
  const { messages, hasEarlier, hasLater, newest, isLoadingMore, loadEarlier, loadLater } = loaded;
  const scroller = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const height = useRef(0);
  const firstNumber = messages[0]?.number;
  const lastNumber = messages.at(-1)?.number;

  // what is added before the first message does not move what the reader sees; at the end new ones come into view
  const knownFirst = useRef(firstNumber);
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    if (firstNumber !== knownFirst.current) element.scrollTop += element.scrollHeight - height.current;
    else if (isAtEnd.current && isFromNewest) element.scrollTop = element.scrollHeight;
    knownFirst.current = firstNumber;
    height.current = element.scrollHeight;
  }, [firstNumber, lastNumber, isFromNewest]);

  const loadedFor = useRef(0);
  useLayoutEffect(() => {
    if (!hasLater || !isFromNewest || !isAtEnd.current || isLoadingMore || loadedFor.current === newest) return;
    loadedFor.current = newest; // once for each new message, whatever the reply has
    void loadLater();
  }, [hasLater, newest, isFromNewest, isLoadingMore, loadLater]);

  return (
    <div
      ref={scroller}
      className="min-h-0 flex-1 overflow-auto"
      tabIndex={0}
      role="region"
      aria-label={t.title}
      onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
        isAtEnd.current = scrollHeight - scrollTop - clientHeight < 40;
      }}
    >
      <div className="mx-auto flex max-w-3xl flex-col gap-3 p-3">
        {hasEarlier ? (
          <Button className="self-center" disabled={isLoadingMore} onClick={() => void loadEarlier()}>
            {t.earlier}
          </Button>
        ) : (
          <p className="self-center text-xs text-ink-2">{messages.length ? t.begin : t.empty}</p>
        )}
        {messages.map((message) => (
          <Message key={message.number} message={message} />
        ))}
        {hasLater ? (
          <div className="flex justify-center gap-2">
            <Button disabled={isLoadingMore} onClick={() => void loadLater()}>
              {t.later}
            </Button>
            {isFromNewest ? null : (
              <Link to="/conversations/$conversationId" params={{ conversationId: id }} search={{}} className="inline-flex min-h-6 items-center rounded border border-line-strong px-2 hover:bg-raised">
                {t.newest}
              </Link>
            )}
          </div>
        ) : null}
      </div>
    </div>
  );
}
