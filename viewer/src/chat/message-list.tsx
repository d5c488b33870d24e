/** The messages of a chat. It knows neither where they come from nor how a form is answered. */
import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";

import { AudioPlayer } from "../answer/audio-player";
import { FileList, type Download } from "../answer/files";
import { citedNumbers } from "../answer/message-end";
import { SPEECH } from "../answer/speech";
import { SourceList } from "../answer/sources";
import { questionOf } from "../run/form-values";
import type { OpenForm } from "../store/run";
import { texts } from "../texts";
import { Markdown } from "../ui/markdown";
import { Button } from "../ui/parts";
import { LongText } from "../ui/values";
import { visibleName, visibleText } from "../ui/visible-text";
import { AnswerText } from "./answer-text";
import { isClosed, type ChatTurn, type Question } from "./turns";

const t = texts.chat;
const NEAR_END_PX = 60;
const MAX_PLAIN_CHARS = 20_000;
const CARD = "max-w-full rounded-lg border border-line bg-surface px-3 py-2";

interface Props {
  /** What the agent says first; "" for nothing. */
  greeting: string;
  turns: readonly ChatTurn[];
  isCut: boolean;
  download: Download;
  renderForm: (form: OpenForm) => ReactNode;
  /** What stands before the first message, for example a form. */
  children?: ReactNode;
}

export function MessageList({ greeting, turns, isCut, download, renderForm, children }: Props): ReactNode {
  const { place, isAtEnd, jump } = useFollowEnd(turns);
  return (
    <div className="relative flex min-h-0 flex-1 flex-col">
      <div ref={place} role="log" aria-live="off" aria-label={t.log} tabIndex={0} className="min-h-0 flex-1 overflow-auto">
        <div className="mx-auto flex max-w-3xl flex-col gap-3 p-3">
          {greeting ? (
            <section aria-label={t.agent} className={CARD}>
              <Markdown text={greeting} />
            </section>
          ) : null}
          {children}
          {isCut ? <p className="text-center text-sm text-ink-2">{t.cut}</p> : null}
          {turns.map((turn) => (
            <Turn key={turn.key} turn={turn} download={download} renderForm={renderForm} />
          ))}
        </div>
      </div>
      {isAtEnd ? null : (
        <Button className="absolute bottom-2 left-1/2 -translate-x-1/2 shadow" onClick={jump}>
          <span aria-hidden="true">↓</span> {t.latest}
        </Button>
      )}
    </div>
  );
}

/** Stay at the end of the list while it grows, unless its reader has scrolled up. */
function useFollowEnd(turns: readonly ChatTurn[]): { place: React.RefObject<HTMLDivElement | null>; isAtEnd: boolean; jump: () => void } {
  const place = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const [isAtEnd, setAtEnd] = useState(true);
  const count = turns.length;
  useEffect(() => {
    follows.current = true; // a message of one's own leads to the end
  }, [count]);
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const onScroll = (): void => {
      follows.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PX;
      setAtEnd(follows.current);
    };
    const observer = new ResizeObserver(() => {
      if (follows.current) element.scrollTop = element.scrollHeight;
    });
    element.addEventListener("scroll", onScroll);
    observer.observe(element);
    if (element.firstElementChild) observer.observe(element.firstElementChild);
    return () => {
      element.removeEventListener("scroll", onScroll);
      observer.disconnect();
    };
  }, []);
  const jump = (): void => {
    follows.current = true;
    if (place.current) place.current.scrollTop = place.current.scrollHeight;
  };
  return { place, isAtEnd, jump };
}

function Turn({ turn, download, renderForm }: { turn: ChatTurn; download: Download; renderForm: (form: OpenForm) => ReactNode }): ReactNode {
  const { answers, sources } = turn;
  const numbers = citedNumbers(answers.map((answer) => answer.text), sources).join(); // the same list while a text grows, so that an open source stays open
  const cited = useMemo(() => (numbers ? numbers.split(",").map(Number) : []), [numbers]);
  const isWriting = !isClosed(turn);
  const shown = answers.filter((answer) => answer.text || answer.files.length || answer.speech.length);
  return (
    <div data-testid="chat-turn" data-status={turn.status} className="flex flex-col gap-3">
      {turn.question ? <Asked question={turn.question} /> : null}
      {shown.length || isWriting || turn.status === "failed" || turn.status === "stopped" ? (
        <section aria-label={t.agent} aria-busy={isWriting} className={`${CARD} min-w-24 self-start`}>
          {shown.map((answer) => (
            <div key={answer.id} data-testid="chat-answer" className="not-first:mt-3">
              <AnswerText answer={answer} sources={sources} cited={cited} download={download} />
              {answer.speech.length && !answer.isOpen ? <AudioPlayer parts={answer.speech.map((each) => each.source)} type={SPEECH} name={texts.answer.readAloud} download={download} /> : null}
              <FileList files={answer.files} download={download} />
            </div>
          ))}
          {isWriting ? <Writing /> : null}
          <SourceList cited={cited} sources={sources} />
          <Ending turn={turn} />
        </section>
      ) : null}
      {turn.forms.map((form) => (
        <FormCard key={form.nodeId} form={form}>
          {renderForm(form)}
        </FormCard>
      ))}
    </div>
  );
}

function Asked({ question: { text, files, values } }: { question: Question }): ReactNode {
  return (
    <section aria-label={t.you} className="flex max-w-[85%] flex-col gap-1 self-end rounded-lg bg-accent-soft px-3 py-2 break-words">
      {text.length > MAX_PLAIN_CHARS ? <LongText text={text} /> : text ? <p className="whitespace-pre-wrap">{visibleText(text)}</p> : null}
      {values.length ? (
        <dl>
          {values.map(([name, value]) => (
            <div key={name}>
              <dt className="inline text-ink-2">
                <bdi>{visibleName(name, 120)}</bdi>:
              </dt>{" "}
              <dd className="inline">
                <bdi>{visibleName(value, 2000)}</bdi>
              </dd>
            </div>
          ))}
        </dl>
      ) : null}
      {files.map((name, place) => (
        <p key={place} className="text-sm">
          <span aria-hidden="true">▤ </span>
          <bdi>{visibleName(name, 120)}</bdi>
        </p>
      ))}
      {!text && !values.length && !files.length ? <p className="text-ink-2">{t.answered}</p> : null}
    </section>
  );
}

function Writing(): ReactNode {
  return (
    <p className="text-ink-2">
      <span className="sr-only">{t.writing}</span>
      <span aria-hidden="true" className="inline-flex gap-1 py-2 motion-safe:animate-pulse">
        {[0, 1, 2].map((dot) => (
          <span key={dot} className="size-1.5 rounded-full bg-ink-2" />
        ))}
      </span>
    </p>
  );
}

function Ending({ turn: { status, error } }: { turn: ChatTurn }): ReactNode {
  if (status === "stopped") return <p className="mt-1 text-sm text-ink-2">{t.stopped}</p>;
  if (status !== "failed") return null;
  return (
    <div role="alert" data-tone="red" className="mt-1 text-sm">
      <p className="text-tone">{t.failed}</p>
      {error ? (
        <details>
          <summary className="min-h-6 cursor-pointer text-ink-2">{t.details}</summary>
          <p className="break-words whitespace-pre-wrap">{visibleText(error.slice(0, 4000))}</p>
        </details>
      ) : null}
    </div>
  );
}

function FormCard({ form, children }: { form: OpenForm; children: ReactNode }): ReactNode {
  const isForOwner = questionOf(form) !== null;
  return (
    <section aria-label={t.form} data-tone="violet" data-border="dashed" className="max-w-full self-start rounded-lg bg-tone-soft p-3">
      <h2 className="mb-1 font-semibold text-tone">{t.form}</h2>
      {isForOwner ? (
        <p>{t.ownerForm}</p>
      ) : (
        <>
          {form.tips ? <Markdown text={form.tips} /> : null}
          {children}
        </>
      )}
    </section>
  );
}
