/** `/chat/{agent}#{token}`: the chat of a share link, on its own or in a frame of another site. */
import { getRouteApi, useRouterState } from "@tanstack/react-router";
import { useEffect, useMemo, useSyncExternalStore, type ReactNode } from "react";

import { ShareLink } from "../api/share-link";
import { ChatView, ProblemText } from "../chat/chat-view";
import { Conversation } from "../chat/conversation";
import { texts } from "../texts";
import { useGivenTheme } from "../ui/theme";

const TOKEN = /^[\x21-\x7e]+$/;
const route = getRouteApi("/chat/$agentId");

export function ChatPage(): ReactNode {
  const { agentId } = route.useParams();
  const { theme } = route.useSearch();
  const token = useRouterState({ select: (state) => state.location.hash.trim() });
  useGivenTheme(theme);
  return TOKEN.test(token) ? <Chat key={`${agentId} ${token}`} agentId={agentId} token={token} /> : <NoToken />;
}

function Chat({ agentId, token }: { agentId: string; token: string }): ReactNode {
  const conversation = useMemo(() => new Conversation(new ShareLink(encodeURIComponent(agentId), token)), [agentId, token]);
  const { isLoading, isAway, turns } = useSyncExternalStore(conversation.subscribe, conversation.getState);
  useEffect(() => {
    void conversation.load();
    return () => conversation.close();
  }, [conversation]);
  const isStreaming = ["sending", "running"].includes(turns.at(-1)?.status ?? "");
  return (
    <main
      data-testid="page"
      data-page="chat"
      data-ready={isLoading ? "0" : "1"}
      data-live={isAway ? "away" : isStreaming ? "stream" : "off"}
      className="flex min-h-0 flex-1 flex-col text-[15px]"
    >
      <ChatView conversation={conversation} />
    </main>
  );
}

function NoToken(): ReactNode {
  return (
    <main data-testid="page" data-page="chat" data-ready="1" data-live="off" className="flex-1 text-[15px]">
      <title>{texts.chat.title}</title>
      <h1 className="sr-only">{texts.chat.title}</h1>
      <ProblemText kind="noToken" note={null} />
    </main>
  );
}
