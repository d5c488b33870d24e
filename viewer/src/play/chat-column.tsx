/** A chat with an agent: the turns of a conversation, and where the next one is written. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState, useSyncExternalStore, type ReactNode, type RefObject } from "react";

import { rerunWithQuery, startRun, type StartBody } from "../api/play";
import { aboutQuery } from "../api/queries";
import { cancelRun } from "../api/runs";
import { useOpenRun, type OpenRun } from "../run/use-open-run";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { Markdown } from "../ui/markdown";
import { Button, Empty } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import type { Begin } from "./begin";
import { ChatTurn } from "./chat-turn";
import { Composer } from "./composer";
import { errorsOf, FailureNotice, FindingList } from "./findings";
import { activeTurn, type Turn } from "./turns";
import { refreshAgent, refreshConversation, useAgent, useBegin, useConversation, type LoadedAgent, type LoadedConversation } from "./use-conversation";
import { useSend } from "./use-send";

const t = texts.play;

export interface ChatProps {
  agentId: string;
  /** The version that a new conversation runs; the draft if it is not given. */
  version?: string | undefined;
  /** The conversation that is shown; the next message begins one if it is not given. */
  conversation?: string | undefined;
  /** The run that is shown beside the chat: its texts and forms are shown in the chat as they come. */
  open: OpenRun | null;
  /** Another conversation is to be shown, null for a new one. */
  onConversation: (conversation: string | null) => void;
  onVersion: (version: string | null) => void;
  /** The run of a turn is to be shown, with one of its steps; null for that of the latest turn. */
  onRun: (runId: string | null, stepId?: string) => void;
}

export function ChatColumn(props: ChatProps): ReactNode {
  const { agentId, version, conversation, open, onConversation, onRun } = props;
  const client = useQueryClient();
  const announce = useAnnounce();
  const agent = useAgent(agentId);
  const talk = useConversation(conversation);
  const about = useQuery({ ...aboutQuery, enabled: false }).data;
  const isReader = !(about?.may?.includes("change") ?? false);
  const sender = useSend();
  const stopper = useSend();

  const { turns } = talk;
  const isForeign = turns.some((turn) => turn.run !== null && turn.run.agent_id !== agentId);
  const active = activeTurn(turns);
  const ran = turns.findLast((turn) => turn.run !== null)?.run?.version_id ?? undefined;
  const begin = useBegin(agentId, agent.head, conversation === undefined ? version : (ran ?? version));
  const latest = active?.runId ?? null;
  const own = useOpenRun(latest !== null && latest !== open?.runId ? latest : null);
  const followed = (runId: string | null): OpenRun | null => (runId === null ? null : runId === open?.runId ? open : runId === own?.runId ? own : null);
  const waits = useWaits(followed(latest), active);
  useRefreshWithStatus(followed(latest), talk);

  const isDraft = conversation === undefined && version === undefined;
  const errors = isDraft ? errorsOf(agent.head?.findings) : [];
  const blocked = isReader ? t.readOnly : errors.length ? t.cannotRun(errors.length) : waits;

  const start = async (body: StartBody): Promise<boolean> => {
    const whole: StartBody = { ...body, ...(conversation === undefined ? (version === undefined ? {} : { version }) : { session_id: conversation }) };
    const started = await sender.send(whole, (key) => startRun(agentId, whole, key));
    if (!started) return false;
    announce(body.on_busy === "enqueue" ? t.queued : t.sent);
    await refreshConversation(client, started.session_id);
    if (conversation === undefined) onConversation(started.session_id);
    else onRun(null);
    void refreshAgent(client, agentId);
    return true;
  };
  const edit = async (runId: string, text: string): Promise<boolean> => {
    const started = await sender.send([runId, text], (key) => rerunWithQuery(runId, text, key));
    if (!started) return false;
    announce(t.edited);
    onConversation(started.session_id);
    return true;
  };
  const cancel = async (runId: string): Promise<void> => {
    const isDone = await stopper.send(runId, (key) => cancelRun(runId, key).then(() => true));
    if (!isDone) return;
    announce(t.stopped);
    await Promise.all([talk.refresh(), followed(runId)?.live.refresh()]);
  };

  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <ChatBar {...props} agent={agent} ranVersion={ran} />
      <Turns hasTurns={turns.length > 0} isFollowing={active !== null}>
        {talk.error === null ? null : <TalkError talk={talk} onNew={() => onConversation(null)} />}
        {isForeign ? <Notice text={t.missingConversation} onNew={() => onConversation(null)} /> : null}
        {talk.hasEarlier ? (
          <Button className="self-center" disabled={talk.isLoadingEarlier} onClick={talk.loadEarlier}>
            {talk.isLoadingEarlier ? t.loading : t.earlier}
          </Button>
        ) : (
          <Greeting begin={begin} />
        )}
        {talk.isLoading ? <Empty>{t.loading}</Empty> : null}
        {turns.length || talk.isLoading || talk.error !== null || begin === null ? null : (
          <p className="text-ink-2">{begin.form.fields.length ? t.emptyForm : t.empty}</p>
        )}
        {isForeign
          ? null
          : turns.map((turn, place) => (
              <ChatTurn
                key={turn.key}
                turn={turn}
                number={place + 1}
                agentId={agentId}
                open={followed(turn.runId)}
                isShown={turn.runId !== null && turn.runId === open?.runId}
                actions={{
                  onShow: onRun,
                  isBusy: sender.isBusy || stopper.isBusy,
                  ...(isReader ? {} : { onEdit: edit, onRemove: (runId: string) => void cancel(runId) }),
                }}
              />
            ))}
      </Turns>
      {errors.length ? (
        <div className="max-h-[40%] shrink-0 overflow-auto px-3 py-2" tabIndex={0} role="region" aria-label={t.cannotRun(errors.length)}>
          <FindingList title={t.cannotRun(errors.length)} findings={errors} />
        </div>
      ) : null}
      {stopper.failure === null ? null : (
        <div className="px-3 pt-2">
          <FailureNotice failure={stopper.failure} />
        </div>
      )}
      {begin === null ? null : (
        <Composer
          agentId={agentId}
          keptAs={`play ${agentId} ${conversation ?? "new"}`}
          begin={begin}
          isActive={active !== null}
          blocked={blocked}
          sender={sender}
          onSend={start}
          onStop={latest === null || isReader ? null : () => void cancel(latest)}
        />
      )}
    </div>
  );
}

/** Return why the turn that runs must have an answer before the next message. */
function useWaits(run: OpenRun | null, active: Turn | null): string | null {
  const live = useStoreStatus(run);
  const isWaiting = (live ?? active?.run?.status) === "waiting";
  if (!isWaiting) return null;
  return active?.run?.waits === "budget" ? t.needsBudget : t.answerForm;
}

const never = (): (() => void) => () => undefined;

function useStoreStatus(run: OpenRun | null): string | null {
  return useSyncExternalStore(run?.store.subscribe ?? never, () => run?.store.getState().header?.status ?? null);
}

/** Read the conversation again as soon as the run that is followed has another status than before. */
function useRefreshWithStatus(run: OpenRun | null, { refresh }: LoadedConversation): void {
  const status = useStoreStatus(run);
  const known = useRef<{ run: OpenRun; status: string } | null>(null);
  useEffect(() => {
    if (run === null || status === null) return;
    const before = known.current;
    known.current = { run, status };
    if (before?.run === run && before.status !== status) void refresh();
  }, [run, status, refresh]);
}

interface BarProps extends ChatProps {
  agent: LoadedAgent;
  ranVersion: string | undefined;
}

/** Which version is run, and the way to a new conversation. */
function ChatBar({ agent: { versions }, ranVersion, version, conversation, onVersion, onConversation }: BarProps): ReactNode {
  const row = versions.find((each) => each.id === ranVersion);
  const isOfDraft = conversation !== undefined && row !== undefined && row.same_as_draft && version === undefined;
  const shown = conversation === undefined ? (version ?? "") : isOfDraft ? "" : (ranVersion ?? version ?? "");
  const hasChanged = conversation !== undefined && version === undefined && row !== undefined && !row.same_as_draft;
  return (
    <div className="shrink-0 border-b border-line px-3 py-2">
      <div className="flex flex-wrap items-center gap-2">
        <label className="flex min-w-0 flex-1 basis-40 items-center gap-1">
          <span className="text-ink-2">{t.version}</span>
          <select
            value={shown}
            onChange={(event) => onVersion(event.target.value || null)}
            className="min-h-6 min-w-0 flex-1 rounded border border-line-strong bg-surface px-1"
          >
            <option value="">{t.draft}</option>
            {versions.map((each) => (
              <option key={each.id} value={each.id}>
                {t.versionName(each.number, each.published, visibleName(each.title, 40))}
              </option>
            ))}
            {shown && !versions.some((each) => each.id === shown) ? <option value={shown}>{t.goneVersion}</option> : null}
          </select>
        </label>
        <Button disabled={conversation === undefined} onClick={() => onConversation(null)}>
          {t.newConversation}
        </Button>
      </div>
      {hasChanged ? <p className="mt-1 text-xs text-ink-2">{t.changed}</p> : null}
    </div>
  );
}

function Greeting({ begin }: { begin: Begin | null }): ReactNode {
  if (begin === null) return null;
  return (
    <>
      {begin.prologue ? (
        <section aria-label={t.agentGreets} className="rounded-lg border border-line bg-surface px-3 py-2">
          <Markdown text={begin.prologue} />
        </section>
      ) : null}
      {begin.mode === "Webhook" ? <p className="text-ink-2">{t.webhook}</p> : null}
    </>
  );
}

function TalkError({ talk: { error, turns }, onNew }: { talk: LoadedConversation; onNew: () => void }): ReactNode {
  if (!turns.length && error && "status" in error && (error.status === 404 || error.status === 400)) return <Notice text={t.missingConversation} onNew={onNew} />;
  return (
    <p role="alert" data-tone="amber" className="rounded bg-tone-soft p-2 text-tone">
      {t.unreachable} {visibleName(error?.message ?? "", 400)}
    </p>
  );
}

function Notice({ text, onNew }: { text: string; onNew: () => void }): ReactNode {
  return (
    <div role="alert" className="flex flex-wrap items-center gap-2">
      <p>{text}</p>
      <Button onClick={onNew}>{t.newConversation}</Button>
    </div>
  );
}

/** The turns; their end is kept in view until the reader scrolls away from it. */
function Turns({ hasTurns, isFollowing, children }: { hasTurns: boolean; isFollowing: boolean; children: ReactNode }): ReactNode {
  const box = useRef<HTMLDivElement>(null);
  const contents = useRef<HTMLDivElement>(null);
  const { isAway, toEnd } = useEndInView(box, contents);
  return (
    <div className="relative flex min-h-0 flex-1 flex-col">
      <div ref={box} className="min-h-0 flex-1 overflow-auto" tabIndex={0} role="log" aria-live="off" aria-label={t.turns}>
        <div ref={contents} className="mx-auto flex max-w-3xl flex-col gap-4 p-3">
          {children}
        </div>
      </div>
      {isAway && hasTurns && isFollowing ? (
        <Button className="absolute bottom-2 left-1/2 -translate-x-1/2 shadow-lg" onClick={toEnd}>
          ↓ {t.toEnd}
        </Button>
      ) : null}
    </div>
  );
}

const END_PX = 48;

function useEndInView(box: RefObject<HTMLElement | null>, contents: RefObject<HTMLElement | null>): { isAway: boolean; toEnd: () => void } {
  const [isAway, setAway] = useState(false);
  const isAtEnd = useRef(true);
  const toEnd = (): void => box.current?.scrollTo({ top: box.current.scrollHeight });
  useEffect(() => {
    const [outer, inner] = [box.current, contents.current];
    if (!outer || !inner) return;
    const onScroll = (): void => {
      isAtEnd.current = outer.scrollHeight - outer.scrollTop - outer.clientHeight < END_PX;
      setAway(!isAtEnd.current);
    };
    const observer = new ResizeObserver(() => {
      if (isAtEnd.current) outer.scrollTop = outer.scrollHeight;
    });
    observer.observe(inner);
    outer.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      observer.disconnect();
      outer.removeEventListener("scroll", onScroll);
    };
  }, [box, contents]);
  return { isAway, toEnd };
}

