/** The text of an answer: Markdown with citations as footnotes, files as buttons, and the reasoning folded. */
import { useMemo, type ReactNode } from "react";

import { OwnFile, type Download } from "../answer/files";
import { MAX_MARKDOWN_CHARS, splitMarkers } from "../answer/markers";
import type { Source } from "../answer/message-end";
import { SourceMark } from "../answer/sources";
import { ownFilePath } from "../api/own-files";
import { texts } from "../texts";
import { Markdown, type MarkdownExtras } from "../ui/markdown";
import { LongText } from "../ui/values";
import { visibleText } from "../ui/visible-text";
import type { Answer } from "./turns";

const t = texts.chat;

interface Props {
  answer: Answer;
  sources: ReadonlyMap<number, Source>;
  /** The numbers that the turn cites, in the order of their footnotes. */
  cited: readonly number[];
  download: Download;
}

export function AnswerText({ answer, sources, cited, download }: Props): ReactNode {
  const { answer: text, reasoning } = splitMarkers(answer.text);
  const extras = useMemo(
    (): MarkdownExtras => ({
      cite: (number) => <SourceMark number={cited.indexOf(number) + 1} source={sources.get(number)} written={number} isOpen={answer.isOpen} />,
      file: (url, label, isPicture) => <OwnFile path={ownFilePath(url) ?? ""} label={label} isPicture={isPicture} download={download} />,
    }),
    [cited, sources, answer.isOpen, download],
  );
  return (
    <>
      {reasoning ? (
        <details className="mb-2 text-sm text-ink-2">
          <summary className="min-h-6 cursor-pointer">{t.reasoning}</summary>
          <pre className="max-h-72 overflow-auto font-sans whitespace-pre-wrap" tabIndex={0}>
            {visibleText(reasoning.slice(0, MAX_MARKDOWN_CHARS))}
          </pre>
        </details>
      ) : null}
      {text.length > MAX_MARKDOWN_CHARS ? <LongText text={text} /> : text ? <Markdown text={text} extras={extras} /> : null}
    </>
  );
}
