/** One turn of a chat: what was said, the answer as it comes or as it is stored, and what it has cost. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useCallback, useId, useMemo, useRef, useState, useSyncExternalStore, type ReactNode } from "react";

import { FileList } from "../answer/files";
import { endOf, NOTHING } from "../answer/message-end";
import { SourceList } from "../answer/sources";
import { useCitations } from "../answer/use-citations";
import { readFile } from "../api/files";
import { readMessageEnd, type ConversationMessage } from "../api/play";
import { readWholeValue } from "../api/runs";
import { isObject, usageOf } from "../run-file/rows";
import { BudgetPane } from "../run/budget-form";
import { OpenForms } from "../run/open-form";
import { Message, Reasoning } from "../run/talk-pane";
import type { OpenRun } from "../run/use-open-run";
import { RunProvider } from "../run/run-provider";
import type { RunSearch } from "../run/run-search";
import { useRun } from "../run/use-run";
import { isOver, runLook } from "../store/run-status";
import { texts } from "../texts";
import { bytes, count, duration, money } from "../ui/format";
import { Markdown } from "../ui/markdown";
import { Button, StateBadge } from "../ui/parts";
import { useIsSeen } from "../ui/use-is-seen";
import { LongText, Value } from "../ui/values";
import { visibleName } from "../ui/visible-text";
import { runActions } from "./run-actions";
import { SentFiles } from "./sent-files";
import { TurnFork } from "./turn-fork";
import type { Turn } from "./turns";

const t = texts.play;
const NO_SEARCH: RunSearch = {};
const LINK = "inline-flex min-h-6 items-center text-accent underline disabled:text-ink-2 disabled:no-underline";

export interface TurnActions {
  /** Show the run of a turn, with one of its steps. */
  onShow: (runId: string, stepId?: string) => void;
  /** Undefined where nothing may be started. */
  onEdit?: (runId: string, text: string) => Promise<boolean>;
  onRemove?: (runId: string) => void;
  isBusy: boolean;
}

interface Props {
  turn: Turn;
  number: number;
  agentId: string;
  /** The run of the turn, if it is followed. */
  open: OpenRun | null;
  /** Whether its run is the one that is shown beside the chat. */
  isShown: boolean;
  actions: TurnActions;
}

export function ChatTurn({ turn, number, agentId, open, isShown, actions }: Props): ReactNode {
  const status = turn.run?.status ?? "";
  return (
    <article
      aria-label={t.turn(number)}
      data-testid="turn"
      data-run-id={turn.runId ?? ""}
      data-status={status}
      aria-current={isShown}
      className={`flex flex-col gap-2 border-l-2 py-1 pl-2 ${isShown ? "border-accent" : "border-transparent"}`}
    >
      {turn.asked.map((content, place) => (
        <Asked key={place} content={content} runId={place === 0 && status !== "queued" ? turn.runId : null} actions={actions} />
      ))}
      {turn.runId === null || status === "queued" ? null : <SentFiles runId={turn.runId} messages={turn.asked.length} />}
      <Answer turn={turn} agentId={agentId} open={open} onShow={actions.onShow} />
      {turn.runId === null ? <p className="text-xs text-ink-2">{t.handedOn}</p> : <Figures turn={turn} runId={turn.runId} agentId={agentId} open={open} isShown={isShown} actions={actions} />}
    </article>
  );
}

function Asked({ content, runId, actions }: { content: unknown; runId: string | null; actions: TurnActions }): ReactNode {
  const [isEdited, setEdited] = useState(false);
  if (content === null || content === undefined || content === "") return null;
  const { onEdit } = actions;
  if (isEdited && runId !== null && onEdit && typeof content === "string") {
    return <Edit text={content} isBusy={actions.isBusy} onCancel={() => setEdited(false)} onSend={(text) => void onEdit(runId, text).then((isSent) => isSent && setEdited(false))} />;
  }
  return (
    <div className="flex max-w-[92%] items-start gap-1 self-end">
      {runId !== null && onEdit && typeof content === "string" ? (
        <button type="button" aria-label={t.edit} title={t.edit} onClick={() => setEdited(true)} className="inline-flex size-6 shrink-0 items-center justify-center rounded text-ink-2 hover:bg-raised">
          ✎
        </button>
      ) : null}
      <section aria-label={t.you} className="min-w-0 rounded-lg bg-accent-soft px-3 py-2">
        {typeof content === "string" ? <LongText isProse text={content} /> : <Value value={content} />}
      </section>
    </div>
  );
}

function Edit({ text, isBusy, onCancel, onSend }: { text: string; isBusy: boolean; onCancel: () => void; onSend: (text: string) => void }): ReactNode {
  const [value, setValue] = useState(text);
  const id = useId();
  return (
    <form
      className="flex w-full flex-col gap-2 rounded border border-line-strong p-2"
      onSubmit={(event) => {
        event.preventDefault();
        onSend(value);
      }}
    >
      <textarea
        aria-label={t.editText}
        aria-describedby={id}
        autoFocus
        rows={3}
        value={value}
        onChange={(event) => setValue(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") onCancel();
        }}
        className="w-full rounded border border-line-strong bg-surface px-2 py-1 text-sm [field-sizing:content]"
      />
      <p id={id} className="text-xs text-ink-2">
        {t.editHint}
      </p>
      <div className="flex flex-wrap justify-end gap-2">
        <Button onClick={onCancel}>{t.cancelEdit}</Button>
        <Button type="submit" disabled={isBusy || value.trim() === ""}>
          {t.editSend}
        </Button>
      </div>
    </form>
  );
}

interface AnswerProps extends Pick<Props, "turn" | "agentId"> {
  onShow: TurnActions["onShow"];
}

function Answer({ open, ...props }: AnswerProps & Pick<Props, "open">): ReactNode {
  const { turn } = props;
  if (turn.run?.status === "queued") return <p className="text-ink-2">{t.isQueued}</p>;
  return open ? <FollowedAnswer {...props} open={open} /> : <StoredAnswer turn={turn} />;
}

/** What a run writes, as it comes, with its open forms; what is stored of it until the run is read. */
function FollowedAnswer({ turn, agentId, open, onShow }: AnswerProps & { open: OpenRun }): ReactNode {
  const { isLoaded, isComplete } = useSyncExternalStore(open.live.subscribe, open.live.getStatus);
  const actions = useMemo(() => runActions(open, agentId, () => onShow(open.runId)), [open, agentId, onShow]);
  const showStep = useCallback((stepId: string | null) => onShow(open.runId, stepId ?? undefined), [open, onShow]);
  const showRun = useCallback(() => onShow(open.runId), [open, onShow]);
  const isReady = isComplete || (isLoaded && turn.answer === null && !isOver(turn.run?.status ?? ""));
  if (!isReady) return <StoredAnswer turn={turn} />;
  return (
    <RunProvider store={open.store} contents={open.contents} actions={actions} search={NO_SEARCH} onSearch={showRun} onStep={showStep}>
      <LiveAnswer turn={turn} />
    </RunProvider>
  );
}

function LiveAnswer({ turn }: { turn: Turn }): ReactNode {
  const streams = useRun((state) => state.streams);
  const forms = useRun((state) => state.forms);
  const status = useRun((state) => state.header?.status ?? "");
  const error = useRun((state) => state.header?.error ?? null);
  return (
    <>
      {streams.map((stream) => (
        <Message key={stream.stepId} stream={stream} />
      ))}
      {streams.length || forms.length || isOver(status) ? null : <p className="animate-pulse text-ink-2">{t.isWorking}</p>}
      {!streams.length && status === "succeeded" ? <StoredAnswer turn={turn} /> : null}
      <BudgetPane />
      <OpenForms forms={forms} />
      <Ending status={status} error={error} />
    </>
  );
}

function StoredAnswer({ turn: { answer, run, runId } }: { turn: Turn }): ReactNode {
  const status = run?.status ?? "";
  if (answer) return <AnswerMessage message={answer} />;
  if (status === "succeeded") return <p className="text-ink-2">{t.isEmpty}</p>;
  if (runId === null || run === null) return null;
  return isOver(status) ? <Ending status={status} error={run.error} /> : <p className="text-ink-2">{t.loading}</p>;
}

/** How a run has ended that did not succeed. */
function Ending({ status, error }: { status: string; error: string | null }): ReactNode {
  if (!isOver(status) || status === "succeeded") return null;
  const isCancelled = status === "cancelled";
  return (
    <div data-tone={isCancelled ? "muted" : "red"} data-border="solid" className="rounded bg-tone-soft p-2 text-tone">
      <p className="font-medium">{isCancelled ? t.cancelled : t.failed}</p>
      {error && !isCancelled ? <LongText text={error} /> : null}
    </div>
  );
}

/** A stored answer: the outputs of the node that has answered. */
function AnswerMessage({ message }: { message: ConversationMessage }): ReactNode {
  const content = isObject(message.content) && !("$preview" in message.content) ? message.content.content : message.content;
  return (
    <section aria-label={t.agent} className="rounded-lg border border-line bg-surface px-3 py-2">
      {typeof content === "string" ? (
        content ? <AnswerText message={message} text={content} /> : <p className="text-ink-2">{t.isEmpty}</p>
      ) : isObject(content) && typeof content.$preview === "string" ? (
        <CutAnswer message={message} preview={content.$preview} size={typeof content.bytes === "number" ? content.bytes : 0} />
      ) : (
        <Value value={content} />
      )}
    </section>
  );
}

const THINKING = /<think>([\s\S]*?)(?:<\/think>|$)/g;

/** A stored answer; reasoning stands between tags in it. */
function AnswerText({ message: { run_id: runId, activation_id: activationId }, text }: { message: ConversationMessage; text: string }): ReactNode {
  const { answer, reasoning } = useMemo(
    () => ({ answer: text.replace(THINKING, ""), reasoning: [...text.matchAll(THINKING)].map((match) => match[1]).join("\n") }),
    [text],
  );
  const place = useRef<HTMLDivElement>(null);
  const isSeen = useIsSeen(place);
  const end = useQuery({
    queryKey: ["play", "message-end", runId, activationId],
    queryFn: async ({ signal }) => endOf(await readMessageEnd(runId ?? "", activationId ?? "", signal)),
    enabled: isSeen && runId !== null && activationId !== null,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const { sources, files } = end.data ?? NOTHING;
  const { extras, cited } = useCitations(answer, sources);
  return (
    <div ref={place}>
      <Reasoning text={reasoning} />
      <Markdown text={answer} extras={extras} />
      <SourceList cited={cited} sources={sources} />
      <FileList files={files} download={readFile} />
      {end.isError ? <p className="text-ink-2">{texts.answer.endFailed}</p> : null}
    </div>
  );
}

/** The beginning of a long answer, until it is asked for whole. */
function CutAnswer({ message, preview, size }: { message: ConversationMessage; preview: string; size: number }): ReactNode {
  const { run_id: runId, activation_id: activationId } = message;
  const [whole, setWhole] = useState<unknown>(null);
  const [error, setError] = useState<string | null>(null);
  if (typeof whole === "string") return <AnswerText message={message} text={whole} />;
  const load = (run: string, activation: string): void => {
    readWholeValue(run, activation, "outputs", "content").then(setWhole, (failure: unknown) =>
      setError(failure instanceof Error ? failure.message : String(failure)),
    );
  };
  return (
    <>
      <LongText text={preview} />
      <p className="text-ink-2">{t.cut(bytes(size))}</p>
      {error === null ? null : (
        <p role="alert" className="text-red">
          {visibleName(error, 400)}
        </p>
      )}
      {runId !== null && activationId !== null ? (
        <button type="button" className={LINK} onClick={() => load(runId, activationId)}>
          {t.whole}
        </button>
      ) : null}
    </>
  );
}

interface FiguresProps extends Pick<Props, "turn" | "agentId" | "open" | "isShown" | "actions"> {
  runId: string;
}

function Figures({ turn, runId, agentId, open, isShown, actions }: FiguresProps): ReactNode {
  const run = turn.run;
  const usage = usageOf(run?.usage);
  const tokens = usage.promptTokens + usage.completionTokens;
  const facts = [
    tokens ? t.tokens(count(tokens)) : null,
    money(usage.cost),
  ];
  return (
    <div className="flex flex-wrap items-center gap-x-3 gap-y-1 text-xs text-ink-2">
      {run ? <StateBadge look={runLook(run.status)} /> : null}
      {open && run && !isOver(run.status) ? <Elapsed open={open} /> : run?.elapsed_ms == null ? null : <span className="tabular-nums">{duration(run.elapsed_ms)}</span>}
      {facts.map((fact) => (fact === null ? null : <span key={fact}>{fact}</span>))}
      <Link to="/runs/$runId" params={{ runId }} className={LINK}>
        {t.open}
      </Link>
      <button type="button" aria-pressed={isShown} onClick={() => actions.onShow(runId)} className={`${LINK} aria-pressed:font-medium aria-pressed:text-ink aria-pressed:no-underline`}>
        {t.show}
      </button>
      <TurnFork
        runId={runId}
        agentId={agentId}
        open={open}
        answerStep={turn.answer?.activation_id ?? null}
        refusal={actions.onEdit === undefined ? t.readOnly : run === null || run.started_at === null ? t.notBegun : null}
        className={LINK}
      />
      {run?.status === "queued" && actions.onRemove ? (
        <button type="button" disabled={actions.isBusy} onClick={() => actions.onRemove?.(runId)} className={LINK}>
          {t.removeQueued}
        </button>
      ) : null}
    </div>
  );
}

/** The time that a run has taken so far. */
function Elapsed({ open: { store } }: { open: OpenRun }): ReactNode {
  const ms = useSyncExternalStore(store.subscribe, () => {
    const { header, now } = store.getState();
    const began = header?.startedAt ?? header?.createdAt ?? null;
    return began === null ? null : Math.max(0, (header?.finishedAt ?? now) - began);
  });
  return ms === null ? null : <span className="tabular-nums">{duration(ms)}</span>;
}
