/** A chat over a share link: header, messages, forms, the field for the next message, and what is wrong. */
import { useEffect, useMemo, useRef, useSyncExternalStore, type ReactNode } from "react";

import { FormFields } from "../run/open-form";
import type { RunActions } from "../run/use-run";
import type { OpenForm } from "../store/run";
import { splitMarkers } from "../answer/markers";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { checkedUrl } from "../ui/markdown";
import { Button, Empty } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { Composer } from "./composer";
import { isFinal, type Conversation, type ConversationState, type Problem, type ProblemKind } from "./conversation";
import { MessageList } from "./message-list";
import { isClosed } from "./turns";

const t = texts.chat;
const MAX_ANNOUNCED_CHARS = 2000;

export function ChatView({ conversation }: { conversation: Conversation }): ReactNode {
  const state = useSyncExternalStore(conversation.subscribe, conversation.getState);
  useAnnouncedAnswers(state);
  const { agent, problem } = state;
  const last = state.turns.at(-1);
  const isRunning = last !== undefined && (!isClosed(last) || last.status === "waiting");
  return (
    <>
      <ChatHeader state={state} conversation={conversation} />
      {agent ? (
        <MessageList
          greeting={agent.greeting}
          turns={state.turns}
          isCut={state.isCut}
          download={conversation.download}
          renderForm={(form) => <TurnForm form={form} conversation={conversation} />}
        >
          {agent.form && state.values === null ? <BeginForm form={agent.form} isTask={agent.isTask} conversation={conversation} /> : null}
        </MessageList>
      ) : (
        <div className="min-h-0 flex-1">{state.isLoading ? <Empty>{t.loading}</Empty> : null}</div>
      )}
      {state.isAway ? (
        <p role="status" data-tone="amber" className="shrink-0 bg-tone-soft px-3 py-1.5 text-tone">
          {t.away}
        </p>
      ) : null}
      {problem ? <ProblemBar problem={problem} hasAgent={agent !== null} conversation={conversation} /> : null}
      {agent && !isFinal(problem) ? <Footer state={state} isRunning={isRunning} conversation={conversation} /> : null}
    </>
  );
}

function ChatHeader({ state: { agent, turns, values }, conversation }: { state: ConversationState; conversation: Conversation }): ReactNode {
  const title = visibleName(agent?.title ?? "", 120) || t.title;
  const avatar = checkedUrl(agent?.avatar ?? "");
  return (
    <header className="flex shrink-0 flex-wrap items-center gap-2 border-b border-line bg-panel px-3 py-2">
      <title>{title}</title>
      {avatar.startsWith("data:image/") ? <img src={avatar} alt="" className="size-7 shrink-0 rounded-full object-cover" /> : null}
      <h1 className="min-w-0 flex-1 basis-32 truncate text-base font-semibold">
        <bdi>{title}</bdi>
      </h1>
      {agent?.form && !agent.isTask && values !== null ? <Button onClick={() => conversation.changeValues()}>{t.changeValues}</Button> : null}
      {turns.length ? <Button onClick={() => conversation.restart()}>{t.restart}</Button> : null}
    </header>
  );
}

function Footer({ state, isRunning, conversation }: { state: ConversationState; isRunning: boolean; conversation: Conversation }): ReactNode {
  const hasForm = state.turns.at(-1)?.status === "waiting" || state.values === null;
  if (state.agent?.isTask) {
    if (!isRunning) return null;
    return (
      <div className="flex shrink-0 justify-center border-t border-line bg-panel p-2">
        <Button onClick={() => void conversation.stop()} className="min-h-9! border-red! px-3! font-medium text-red!">
          {t.stop}
        </Button>
      </div>
    );
  }
  return (
    <Composer
      onSend={(text, files) => conversation.send(text, files)}
      onStop={() => void conversation.stop()}
      isRunning={isRunning}
      refusal={hasForm ? t.placeholderForm : null}
      upload={(file) => conversation.upload(file)}
    />
  );
}

function BeginForm({ form, isTask, conversation }: { form: OpenForm; isTask: boolean; conversation: Conversation }): ReactNode {
  const actions = useFormActions(conversation, (answers, key) => conversation.fillIn(form, answers, key));
  return (
    <section aria-label={t.beginForm} data-tone="accent" data-border="solid" className="rounded-lg bg-surface p-3">
      <h2 className="mb-2 font-semibold">{t.beginForm}</h2>
      <FormFields form={form} actions={actions} keptAs="chat begin" submit={isTask ? t.begin : t.goOn} />
    </section>
  );
}

function TurnForm({ form, conversation }: { form: OpenForm; conversation: Conversation }): ReactNode {
  const actions = useFormActions(conversation, (answers, key) => conversation.answer(form, answers, key));
  return <FormFields form={form} actions={actions} keptAs={`chat ${form.nodeId}`} submit={t.submit} />;
}

type FormActions = Pick<RunActions, "answer" | "upload">;

function useFormActions(conversation: Conversation, answer: FormActions["answer"]): FormActions {
  const latest = useRef(answer);
  useEffect(() => {
    latest.current = answer;
  });
  return useMemo(
    () => ({ answer: (answers, key) => latest.current(answers, key), upload: (file) => conversation.upload(file) }),
    [conversation],
  );
}

function ProblemBar({ problem, hasAgent, conversation }: { problem: Problem; hasAgent: boolean; conversation: Conversation }): ReactNode {
  const isRetried = !hasAgent && !isFinal(problem);
  return (
    <ProblemText
      kind={problem.kind}
      note={problem.retryAfter !== null ? t.retryIn(problem.retryAfter) : problem.kind === "other" ? problem.message : null}
    >
      {isRetried ? <Button onClick={() => void conversation.load()}>{t.tryAgain}</Button> : null}
      {hasAgent && !isFinal(problem) ? (
        <Button aria-label={t.dismiss} onClick={() => conversation.dismissProblem()}>
          ✕
        </Button>
      ) : null}
    </ProblemText>
  );
}

/** What is wrong, and what to do about it. */
export function ProblemText({ kind, note, children }: { kind: ProblemKind | "noToken"; note: string | null; children?: ReactNode }): ReactNode {
  const [title, remedy] = t.problems[kind];
  return (
    <div role="alert" data-tone="red" className="flex shrink-0 items-start gap-2 border-t border-line bg-tone-soft px-3 py-2">
      <div className="min-w-0 flex-1">
        <p className="font-semibold text-tone">{title}</p>
        <p>{remedy}</p>
        {note === null ? null : <p className="break-words text-ink-2">{visibleName(note, 500)}</p>}
      </div>
      {children}
    </div>
  );
}

/** Read answers aloud when they are complete, for screen readers: a text that is being written would be read in pieces. */
function useAnnouncedAnswers({ turns }: ConversationState): void {
  const announce = useAnnounce();
  const last = turns.at(-1);
  const seen = useRef<string | null>(null);
  const state = last === undefined ? null : `${last.key} ${last.status}`;
  useEffect(() => {
    const before = seen.current;
    seen.current = state;
    if (last === undefined || before === null || before === state || !isClosed(last)) return;
    const text = last.answers.map((answer) => splitMarkers(answer.text).answer).join("\n");
    const ending = { waiting: t.announceForm, stopped: t.stopped, failed: t.failed, done: "", sending: "", running: "" }[last.status];
    announce([visibleName(text, MAX_ANNOUNCED_CHARS), ending].filter(Boolean).join(" "));
  }, [state, last, announce]);
}
