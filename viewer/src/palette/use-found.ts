/** What a text finds: an id exactly, or words in runs, agents and conversations. */
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { listConversations } from "../api/conversations";
import { findAgents, findRuns } from "../api/lookups";
import type { RunRow } from "../api/replies";
import { listAgents } from "../api/runs";
import { runLook } from "../store/run-status";
import { texts } from "../texts";
import { minute } from "../ui/format";
import { isHexId } from "../ui/search-values";
import { visibleName } from "../ui/visible-text";
import type { Entry } from "./entries";

const t = texts.palette;
const WAIT_MS = 150; // after the last key
const MOST = 6; // of each kind
const MIN_CHARS = 2;

export interface Found {
  entries: readonly Entry[];
  isSearching: boolean;
  isUnknownId: boolean;
  error: string | null;
}

export function useFound(typed: string): Found {
  const written = typed.trim();
  const asId = written.toLowerCase().replaceAll("-", "");
  const isId = isHexId(asId);
  const wanted = isId ? asId : written;
  const [text, setText] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setText(wanted), isId ? 0 : WAIT_MS);
    return () => clearTimeout(timer);
  }, [wanted, isId]);
  const isWanted = text.length >= MIN_CHARS;
  const { data, error, isFetching } = useQuery({
    queryKey: ["palette", text],
    queryFn: ({ signal }) => (isHexId(text) ? findById(text, signal) : findByWords(text, signal)),
    enabled: isWanted,
    staleTime: 5000,
    retry: false,
  });
  const isCurrent = text === wanted;
  return {
    entries: isCurrent && isWanted ? (data ?? []) : [],
    isSearching: wanted.length >= MIN_CHARS && (isFetching || !isCurrent),
    isUnknownId: isId && isCurrent && data?.length === 0,
    error: isWanted && isCurrent && error ? error.message : null,
  };
}

async function findByWords(text: string, signal: AbortSignal): Promise<Entry[]> {
  const query = { q: text, limit: MOST };
  const [runs, agents, conversations] = await Promise.all([
    findRuns(query, signal),
    findAgents(query, signal),
    listConversations(query, signal),
  ]);
  return [
    ...runs.runs.map((run) => runEntry(run, "runs")),
    ...agents.agents.map((agent): Entry => ({ id: agent.id, group: "agents", title: visibleName(agent.title, 120), hint: visibleName(agent.description ?? "", 80), href: `/agents/${agent.id}` })),
    ...conversations.conversations.map((each): Entry => ({
      id: each.id,
      group: "conversations",
      title: visibleName(each.name, 120) || texts.conversations.unnamed,
      hint: visibleName(each.agent_title ?? "", 60),
      href: `/conversations/${each.id}`,
    })),
  ];
}

/** Return what has this id, by lists, which do not fail for an id that is unknown to them. */
async function findById(id: string, signal: AbortSignal): Promise<Entry[]> {
  const [exact, ofAgent, agents] = await Promise.all([
    findRuns({ q: id, limit: MOST }, signal),
    findRuns({ agent_id: id, limit: 1 }, signal),
    listAgents(signal),
  ]);
  const agent = agents.agents.find((each) => each.id === id)?.title ?? ofAgent.runs[0]?.agent_title;
  const conversation = exact.runs.find((run) => run.session_id === id);
  const entries: Entry[] = exact.runs.filter((run) => run.id === id || run.message_id === id).map((run) => runEntry(run, "ids"));
  if (agent) entries.push({ id, group: "ids", title: t.openAgent(visibleName(agent, 100)), hint: id.slice(0, 8), href: `/agents/${id}` });
  if (conversation) {
    const name = visibleName(conversation.conversation_name ?? "", 100) || texts.conversations.unnamed;
    entries.push({ id: `c${id}`, group: "ids", title: t.openConversation(name), hint: id.slice(0, 8), href: `/conversations/${id}` });
  }
  return entries;
}

function runEntry(run: RunRow, group: "runs" | "ids"): Entry {
  const look = runLook(run.status);
  const title = [run.agent_title ?? run.agent_id ?? "", run.query ?? ""].map((each) => visibleName(each, 100)).filter(Boolean).join(": ");
  return { id: run.id, group, title: `${look.icon} ${title || run.id}`, hint: `${look.word} · ${minute(Date.parse(run.created_at))}`, href: `/runs/${run.id}` };
}
