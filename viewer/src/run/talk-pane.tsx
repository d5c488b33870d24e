/** Talk: what the user asked and what the run wrote, in the order in which its readers received it. */
import { memo, useLayoutEffect, useRef, useState, type ReactNode } from "react";

import { AudioPlayer } from "../answer/audio-player";
import { SPEECH, speechPath } from "../answer/speech";
import { FileList } from "../answer/files";
import { MAX_MARKDOWN_CHARS, splitMarkers } from "../answer/markers";
import { SourceList } from "../answer/sources";
import { useCitations } from "../answer/use-citations";
import type { MessageStream, ServerFile } from "../store/run";
import { isOver } from "../store/run-status";
import { texts } from "../texts";
import { bytes } from "../ui/format";
import { Markdown, type MarkdownExtras } from "../ui/markdown";
import { Button, CopyButton, Empty } from "../ui/parts";
import { LongText } from "../ui/values";
import { visibleName, visibleText } from "../ui/visible-text";
import { BudgetPane } from "./budget-form";
import { Hideable } from "./hidden";
import { OpenForms } from "./open-form";
import { useMessageEnd } from "./message-end";
import { useNodeNames, useRun, useRunContext } from "./use-run";

const t = texts.talk;
const AT_END_PIXELS = 40;
const MAX_GROWING_CHARS = 2_000;
const NO_FILES: readonly ServerFile[] = [];

export default function TalkPane(): ReactNode {
  const streams = useRun((state) => state.streams);
  const forms = useRun((state) => state.forms);
  const query = useRun((state) => state.header?.query ?? null);
  const files = useRun((state) => state.header?.files ?? NO_FILES);
  const isLive = useRun((state) => state.server !== null && !isOver(state.header?.status ?? ""));
  const box = useRef<HTMLDivElement>(null);
  const [isAtEnd, setAtEnd] = useState(true);
  useLayoutEffect(() => {
    if (isLive && isAtEnd && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [streams, forms, isLive, isAtEnd]);
  return (
    <div
      ref={box}
      className="min-h-0 flex-1 overflow-auto"
      tabIndex={0}
      role="region"
      aria-label={texts.run.views.talk}
      onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => setAtEnd(scrollHeight - scrollTop - clientHeight < AT_END_PIXELS)}
    >
      <div className="mx-auto flex max-w-3xl flex-col gap-3 p-3">
        <Hideable part="request">{query || files.length ? <Asked query={query} files={files} /> : null}</Hideable>
        <Hideable part="outputs">
          {streams.map((stream) => (
            <Message key={stream.stepId} stream={stream} />
          ))}
          {!streams.length && !forms.length ? <Empty>{t.empty}</Empty> : null}
        </Hideable>
        <BudgetPane />
        <OpenForms forms={forms} />
        {isLive && !isAtEnd ? (
          <Button className="sticky bottom-2 self-center shadow-md" onClick={() => setAtEnd(true)}>
            {t.jump}
          </Button>
        ) : null}
      </div>
    </div>
  );
}

function Asked({ query, files }: { query: string | null; files: readonly ServerFile[] }): ReactNode {
  const { contents } = useRunContext();
  return (
    <section aria-label={t.asked} className="max-w-full self-end rounded-lg bg-accent-soft px-3 py-2">
      {query ? <LongText text={query} /> : null}
      <FileList files={files} download={contents.readSentFile} />
    </section>
  );
}

/** What a model thought before it answered, folded. */
export function Reasoning({ text }: { text: string }): ReactNode {
  if (!text) return null;
  return (
    <details className="mb-2 text-ink-2">
      <summary className="min-h-6 cursor-pointer">{t.reasoning(text.length)}</summary>
      <LongText isProse text={text} />
    </details>
  );
}

/**
 * Markdown of a text that grows: blocks that are complete are not rendered again, and a last block that has become long
 * is shown as it is written, in pieces of which only the last one changes. So each delta costs little.
 */
function GrowingMarkdown({ text, extras }: { text: string; extras: MarkdownExtras }): ReactNode {
  const blocks = blocksOf(text);
  const last = blocks.pop() ?? "";
  return (
    <>
      {blocks.map((block, index) => (
        <Markdown key={index} text={block} extras={extras} />
      ))}
      {last.length > MAX_GROWING_CHARS ? piecesOf(last).map((piece, index) => <Piece key={index} text={piece} />) : <Markdown text={last} extras={extras} />}
    </>
  );
}

const Piece = memo(function Piece({ text }: { text: string }): ReactNode {
  return <p className="m-0! break-words whitespace-pre-wrap">{visibleText(text)}</p>;
});

/** Return a text in pieces of about MAX_GROWING_CHARS that end at a space, so that one which is full stays the same. */
function piecesOf(text: string): string[] {
  const pieces: string[] = [];
  let from = 0;
  while (text.length - from > MAX_GROWING_CHARS) {
    const space = text.indexOf(" ", from + MAX_GROWING_CHARS);
    if (space < 0) break;
    pieces.push(text.slice(from, space));
    from = space + 1;
  }
  return [...pieces, text.slice(from)];
}

/** Return the blocks of Markdown: parts that end with an empty line outside of a fence of code. */
function blocksOf(text: string): string[] {
  const blocks: string[] = [];
  let block = "";
  let isFenced = false;
  for (const line of text.split(/(?<=\n)/)) {
    if (/^\s*(```|~~~)/.test(line)) isFenced = !isFenced;
    block += line;
    if (isFenced || line.trim() !== "" || block.trim() === "") continue;
    blocks.push(block);
    block = "";
  }
  return [...blocks, block];
}

export function Message({ stream }: { stream: MessageStream }): ReactNode {
  const names = useNodeNames();
  const { contents, selectStep } = useRunContext();
  const { answer, reasoning, audio } = splitMarkers(stream.text);
  const [isPlain, setPlain] = useState(false);
  const place = useRef<HTMLElement>(null);
  const { sources, files, hasFailed } = useMessageEnd(stream.closedAt, place);
  const isOpen = useRun((state) => state.server !== null && stream.closedAt === null && !isOver(state.header?.status ?? ""));
  const isLong = answer.length > MAX_MARKDOWN_CHARS;
  const { extras, cited } = useCitations(answer, sources, isOpen);
  return (
    <article ref={place} data-testid="stream" data-stream={stream.stepId} className="rounded-lg border border-line bg-surface px-3 py-2">
      <div className="mb-1 flex items-center gap-2 text-xs text-ink-2">
        <button type="button" className="min-h-6 min-w-0 truncate text-accent underline" onClick={() => selectStep(stream.stepId)}>
          {t.writtenBy(visibleName(names.get(stream.nodeId) ?? stream.nodeId, 80))}
        </button>
        <span className="flex-1" />
        <Button aria-pressed={isPlain} onClick={() => setPlain(!isPlain)}>
          {t.plain}
        </Button>
        <CopyButton text={() => answer} />
      </div>
      <Reasoning text={reasoning} />
      <div data-text="">{isPlain || isLong ? <LongText text={answer} /> : isOpen ? <GrowingMarkdown text={answer} extras={extras} /> : <Markdown text={answer} extras={extras} />}</div>
      {isOpen ? (
        <span aria-hidden="true" className="inline-block h-4 w-2 animate-pulse bg-accent align-text-bottom" />
      ) : null}
      {audio.length && contents.readFile ? <AudioPlayer parts={audio.map(speechPath)} type={SPEECH} name={texts.answer.readAloud} download={contents.readFile} /> : null}
      {isLong || isPlain ? null : <SourceList cited={cited} sources={sources} />}
      <FileList files={files} download={contents.readFile} />
      {hasFailed ? <p className="text-ink-2">{texts.answer.endFailed}</p> : null}
      {isLong && !isPlain ? <p className="text-ink-2">{t.cut(bytes(MAX_MARKDOWN_CHARS), bytes(answer.length))}</p> : null}
    </article>
  );
}
