/** The citations of a text: marks in its Markdown, and the numbers of its footnotes. */
import { useMemo } from "react";

import type { MarkdownExtras } from "../ui/markdown";
import { citedNumbers, type Source } from "./message-end";
import { SourceMark } from "./sources";

export interface Citations {
  extras: MarkdownExtras;
  /** What the text cites, in the order of its footnotes. */
  cited: readonly number[];
}

export function useCitations(text: string, sources: ReadonlyMap<number, Source>, isOpen = false): Citations {
  const numbers = citedNumbers([text], sources).join(); // the same list while a text grows, so that an open source stays open
  const cited = useMemo(() => (numbers ? numbers.split(",").map(Number) : []), [numbers]);
  const extras = useMemo(
    (): MarkdownExtras => ({
      cite: (number) => <SourceMark number={cited.indexOf(number) + 1} source={sources.get(number)} written={number} isOpen={isOpen} />,
    }),
    [cited, sources, isOpen],
  );
  return { extras, cited };
}
