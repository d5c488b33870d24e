/** Model calls of a step: figures, messages with what is new in a round, offered tools, parameters, the answer. */
import { lazy, Suspense, useCallback, useState, type ReactNode } from "react";

import type { ModelCall } from "../store/run";
import { texts } from "../texts";
import { clockMs, count, duration, money } from "../ui/format";
import { Button, CopyButton, Empty } from "../ui/parts";
import { asJson, Value } from "../ui/values";
import { visibleName, visibleText } from "../ui/visible-text";
import type { CallBodies } from "./contents";
import { Hideable } from "./hidden";
import { Loading } from "./loading";
import { useLoaded, useRun, useRunContext } from "./use-run";

const t = texts.inspector;
const Markdown = lazy(() => import("../ui/markdown").then((module) => ({ default: module.Markdown })));
const MAX_MARKDOWN_CHARS = 100_000;
const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;
const MAX_IMAGE_CHARS = 2.7 * 1024 * 1024;
const NO_CALLS: readonly ModelCall[] = [];

export function ModelTab({ stepId }: { stepId: string }): ReactNode {
  const calls = useRun((state) => state.modelCalls.get(stepId) ?? NO_CALLS);
  const [isMarkdown, setMarkdown] = useState(false);
  if (!calls.length) return <Empty>{t.noCalls}</Empty>;
  return (
    <>
      <Button aria-pressed={isMarkdown} className="mb-2" onClick={() => setMarkdown(!isMarkdown)}>
        {t.formats.markdown}
      </Button>
      {calls.map((call, index) => (
        <Call key={call.id} call={call} before={chatBefore(calls, index)} isOpen={index === calls.length - 1} isMarkdown={isMarkdown} />
      ))}
    </>
  );
}

/** Return the chat call before one, whose messages a further round repeats. */
function chatBefore(calls: readonly ModelCall[], index: number): ModelCall | null {
  const call = calls[index];
  if (!call?.round) return null;
  return calls.slice(0, index).findLast((each) => each.round !== null && each.round !== call.round && each.kind === call.kind && each.bodies !== "none") ?? null;
}

interface CallProps {
  call: ModelCall;
  before: ModelCall | null;
  isOpen: boolean;
  isMarkdown: boolean;
}

function Call({ call, before, isOpen: isFirstOpen, isMarkdown }: CallProps): ReactNode {
  const [isOpen, setOpen] = useState(isFirstOpen);
  const hasFailed = call.status !== "ok";
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)} data-testid="model-call" data-tone={hasFailed ? "red" : "neutral"} className="mb-2 rounded border border-line">
      <summary className="min-h-6 cursor-pointer bg-panel px-2 py-1">
        <span className="font-semibold">{visibleName(call.model, 80)}</span>{" "}
        <span className={hasFailed ? "text-tone" : "text-ink-2"}>{visibleName(call.status, 30)}</span>{" "}
        <span className="text-ink-2">{visibleName(figuresOf(call))}</span>
      </summary>
      <div className="p-2">
        {call.error ? <p className="mb-2 break-words text-tone">{visibleText(call.error)}</p> : null}
        {isOpen ? (
          <Hideable part="bodies">
            <Bodies call={call} before={before} isMarkdown={isMarkdown} />
          </Hideable>
        ) : null}
      </div>
    </details>
  );
}

function figuresOf(call: ModelCall): string {
  const took = call.startedAt === null || call.endedAt === null ? null : call.endedAt - call.startedAt;
  const first = call.startedAt === null || call.firstTokenAt === null ? null : call.firstTokenAt - call.startedAt;
  const figures = [
    call.round ?? `attempt ${call.attempt}`,
    call.account && call.account !== call.model ? visibleName(call.account, 60) : null,
    call.startedAt === null ? null : clockMs(call.startedAt),
    duration(took),
    first === null ? null : `first token after ${duration(first)}`,
    call.tokensIn === null ? null : `${count(call.tokensIn)} → ${count(call.tokensOut)} tokens`,
    call.tokensCached ? `${count(call.tokensCached)} cached` : null,
    money(call.cost),
    call.waitedMs ? `waited ${duration(call.waitedMs)} for the rate limit` : null,
    call.tries > 1 ? `${call.tries} tries` : null,
  ];
  return figures.filter((each) => each !== null).join(" · ");
}

function Bodies({ call, before, isMarkdown }: { call: ModelCall; before: ModelCall | null; isMarkdown: boolean }): ReactNode {
  const { contents } = useRunContext();
  const key = `${call.id} ${before?.id ?? ""}`;
  const load = useCallback(async () => {
    const [own, earlier] = await Promise.all([contents.callBodies(call.id), before ? contents.callBodies(before.id).catch(() => null) : null]);
    return { own, earlier };
  }, [contents, call.id, before]);
  const loaded = useLoaded(key, load);
  return (
    <Loading loaded={loaded}>
      {({ own, earlier }) => {
        if (own === null) return <p className="text-ink-2">{call.bodies === "hidden" ? t.hidden.hidden : t.hidden.none}</p>;
        const known = new Set((earlier?.messages ?? []).map((message) => asJson(message, 0)));
        return (
          <>
            <div className="flex items-center gap-1">
              <h3 className="flex-1 font-semibold">{t.messages}</h3>
              <CopyButton text={() => curlOf(call, own)} label={t.copyCurl} />
              <CopyButton text={() => asJson(own)} label={t.copyCall} />
            </div>
            {own.messages.map((message, index) => (
              <ChatMessage key={index} message={message} isMarkdown={isMarkdown} isNew={earlier !== null && !known.has(asJson(message, 0))} />
            ))}
            {own.response === null ? null : (
              <>
                <h3 className="mt-2 font-semibold">{t.answer}</h3>
                <ChatMessage message={own.response} isMarkdown={isMarkdown} isNew={false} />
              </>
            )}
            {own.tools === null ? null : <Folded title={t.offered} value={own.tools} />}
            <Folded title={t.params} value={own.params} />
          </>
        );
      }}
    </Loading>
  );
}

/** Return a command that repeats a call; the address of the account and its key are left out. */
function curlOf(call: ModelCall, { messages, tools, params }: CallBodies): string {
  const body = { model: call.model.split("@")[0], messages, ...(tools === null ? {} : { tools }), ...(typeof params === "object" && params !== null ? params : {}) };
  const text = JSON.stringify(body).replaceAll("'", "'\\''");
  return `curl "$BASE_URL/chat/completions" -H "Authorization: Bearer $API_KEY" -H 'Content-Type: application/json' -d '${text}'`;
}

function Folded({ title, value }: { title: string; value: unknown }): ReactNode {
  if (typeof value === "object" && value !== null && Object.keys(value).length === 0) return null;
  return (
    <details className="mt-2">
      <summary className="min-h-6 cursor-pointer font-semibold">{title}</summary>
      <Value value={value} />
    </details>
  );
}

function ChatMessage({ message, isMarkdown, isNew }: { message: unknown; isMarkdown: boolean; isNew: boolean }): ReactNode {
  if (typeof message !== "object" || message === null || "$preview" in message || "$cut" in message) return <Value value={message} />;
  const { role, content, ...others } = message as Record<string, unknown>;
  const more = Object.fromEntries(Object.entries(others).filter(([, value]) => value !== null && value !== undefined));
  return (
    <div data-testid="message" data-new={isNew ? "1" : "0"} className={`my-1 border-l-2 pl-2 ${isNew ? "border-accent" : "border-line-strong"}`}>
      <p className="text-xs font-semibold text-ink-2">
        {visibleName(typeof role === "string" ? role : "message", 30)}
        {isNew ? <span className="ml-2 rounded bg-accent-soft px-1 font-normal text-accent">{t.isNew}</span> : null}
      </p>
      {content === null || content === undefined || content === "" ? null : <Content content={content} isMarkdown={isMarkdown} />}
      {Object.keys(more).length ? <Value value={more} /> : null}
    </div>
  );
}

/** The content of a message: a text, or parts of which images are shown. */
function Content({ content, isMarkdown }: { content: unknown; isMarkdown: boolean }): ReactNode {
  if (typeof content === "string" && isMarkdown) {
    return (
      <Suspense fallback={<Empty>{t.loading}</Empty>}>
        <Markdown text={content.slice(0, MAX_MARKDOWN_CHARS)} />
      </Suspense>
    );
  }
  if (!Array.isArray(content)) return <Value value={content} />;
  return content.map((part: unknown, index) => {
    const image = imageOf(part);
    return image === null ? <Value key={index} value={part} /> : <img key={index} src={image} alt={t.image} className="max-h-40 max-w-full border border-line" />;
  });
}

function imageOf(part: unknown): string | null {
  if (typeof part !== "object" || part === null || !("image_url" in part)) return null;
  const address = typeof part.image_url === "object" && part.image_url !== null && "url" in part.image_url ? part.image_url.url : part.image_url;
  return typeof address === "string" && address.length <= MAX_IMAGE_CHARS && IMAGE.test(address) ? address : null;
}
