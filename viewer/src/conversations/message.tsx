/** One message of a conversation, with a link to the step that wrote it. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import type { ConversationMessage } from "../api/replies";
import { MAX_MARKDOWN_CHARS, splitMarkers } from "../answer/markers";
import { texts } from "../texts";
import { bytes, moment } from "../ui/format";
import { Markdown } from "../ui/markdown";
import { CopyButton } from "../ui/parts";
import { LongText } from "../ui/values";
import { visibleName, visibleText } from "../ui/visible-text";
import { contentOf } from "./content";

const t = texts.conversation;

export function Message({ message }: { message: ConversationMessage }): ReactNode {
  const { text, cutFrom, others } = contentOf(message.content);
  const { answer, reasoning } = splitMarkers(text);
  const isUser = message.role === "user";
  const role = t.roles[message.role] ?? visibleName(message.role, 40);
  return (
    <article
      data-testid="message"
      data-number={message.number}
      aria-label={`${t.number(message.number)}, ${role}`}
      className={isUser ? "ml-auto max-w-[85%] min-w-40 rounded-lg bg-accent-soft px-3 py-2" : "rounded-lg border border-line px-3 py-2"}
    >
      <div className="mb-1 flex flex-wrap items-center gap-x-2 text-xs text-ink-2">
        <span className="font-medium">{role}</span>
        <time dateTime={new Date(message.created_at).toISOString()}>{moment(message.created_at)}</time>
        <span className="flex-1" />
        {message.run_id === null ? null : (
          <Link
            to="/runs/$runId"
            params={{ runId: message.run_id }}
            search={{ view: "talk", ...(message.activation_id === null ? {} : { step: message.activation_id }) }}
            aria-label={t.openRunOf(message.number)}
            className="inline-block min-h-6 leading-6 text-accent underline"
          >
            {t.openRun}
          </Link>
        )}
        <CopyButton text={() => answer} />
      </div>
      {reasoning ? (
        <details className="mb-2 text-ink-2">
          <summary className="min-h-6 cursor-pointer">{texts.talk.reasoning(reasoning.length)}</summary>
          <pre className="font-sans whitespace-pre-wrap">{visibleText(reasoning.slice(0, MAX_MARKDOWN_CHARS))}</pre>
        </details>
      ) : null}
      <Body text={answer} isUser={isUser} />
      {cutFrom === null ? null : <p className="mt-1 text-ink-2">{t.cut(bytes(cutFrom))}</p>}
      {others.length ? (
        <p className="mt-1 text-xs text-ink-2">
          {t.other(others.length)}: <bdi className="font-mono">{visibleName(others.join(", "), 200)}</bdi>
        </p>
      ) : null}
    </article>
  );
}

function Body({ text, isUser }: { text: string; isUser: boolean }): ReactNode {
  if (!text) return <p className="text-ink-2">{t.noText}</p>;
  return isUser || text.length > MAX_MARKDOWN_CHARS ? <LongText text={text} /> : <Markdown text={text} />;
}
