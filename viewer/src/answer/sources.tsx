/** Citations as footnotes: marks in the text and a list below it, which open the chunk and its document. */
import * as Popover from "@radix-ui/react-popover";
import type { ReactNode } from "react";

import { texts } from "../texts";
import { visibleName, visibleText } from "../ui/visible-text";
import type { Source } from "./message-end";

const t = texts.answer;
const MAX_SHOWN_CHARS = 20_000;

interface MarkProps {
  /** The number of the footnote, from 1; 0 before the sources are known. */
  number: number;
  source: Source | undefined;
  /** The number in the text. */
  written: number;
  isOpen: boolean;
}

/** A mark in a text; one without a source is shown as it is written once the text is complete. */
export function SourceMark({ number, source, written, isOpen }: MarkProps): ReactNode {
  if (!source || number < 1) return isOpen ? <sup className="text-ink-2">[…]</sup> : `[ID:${written}]`;
  return (
    <sup className="leading-none">
      <SourcePopover number={number} source={source}>
        <button
          type="button"
          aria-label={t.source(number, nameOf(source))}
          className="mx-0.5 inline-flex min-h-6 min-w-6 items-center justify-center rounded bg-accent-soft px-1 text-xs font-medium text-accent"
        >
          {number}
        </button>
      </SourcePopover>
    </sup>
  );
}

/** The footnotes of a turn. */
export function SourceList({ cited, sources }: { cited: readonly number[]; sources: ReadonlyMap<number, Source> }): ReactNode {
  const found = cited.flatMap((number) => sources.get(number) ?? []);
  if (!found.length) return null;
  return (
    <div className="mt-2 text-sm">
      <h3 className="text-ink-2">{t.sources}</h3>
      <ol>
        {found.map((source, place) => (
          <li key={place} className="flex items-baseline gap-1">
            <span className="w-5 shrink-0 text-right text-ink-2 tabular-nums">{place + 1}</span>
            <SourcePopover number={place + 1} source={source}>
              <button type="button" className="min-h-6 min-w-0 truncate text-left text-accent underline">
                <bdi>{nameOf(source)}</bdi>
              </button>
            </SourcePopover>
          </li>
        ))}
      </ol>
    </div>
  );
}

function SourcePopover({ number, source, children }: { number: number; source: Source; children: ReactNode }): ReactNode {
  return (
    <Popover.Root>
      <Popover.Trigger asChild>{children}</Popover.Trigger>
      <Popover.Portal>
        <Popover.Content
          aria-label={t.source(number, nameOf(source))}
          collisionPadding={8}
          sideOffset={4}
          className="z-50 flex max-h-[min(24rem,var(--radix-popover-content-available-height))] w-[min(28rem,calc(100vw-1rem))] flex-col rounded-lg border border-line-strong bg-surface p-3 text-sm text-ink shadow-lg"
        >
          <div className="flex items-start gap-2">
            <p className="min-w-0 flex-1 font-semibold break-words">
              <span className="text-ink-2 tabular-nums">{number}</span> <bdi>{nameOf(source)}</bdi>
            </p>
            <Popover.Close aria-label={texts.close} className="inline-flex size-6 shrink-0 items-center justify-center rounded hover:bg-raised">
              ✕
            </Popover.Close>
          </div>
          <div className="mt-1 min-h-0 flex-1 overflow-auto break-words whitespace-pre-wrap" tabIndex={0}>
            {source.content ? visibleText(source.content.slice(0, MAX_SHOWN_CHARS)) : t.noText}
            {source.content.length > MAX_SHOWN_CHARS ? "…" : null}
          </div>
          {source.url === null ? null : (
            <a href={source.url} target="_blank" rel="noopener noreferrer nofollow" className="mt-2 truncate text-accent underline">
              {t.openSource} <span className="text-ink-2">({visibleName(source.url, 120)})</span>
            </a>
          )}
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  );
}

function nameOf(source: Source): string {
  return visibleName(source.name, 120) || t.unnamedSource;
}
