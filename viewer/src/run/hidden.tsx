/** What the visitor of a share does not see: each part that is hidden says so, instead of looking empty. */
import type { ReactNode } from "react";

import { texts } from "../texts";
import { useRun } from "./use-run";

/** Parts of a run, with the kinds of data that hide them; the API decides (api/visitors/redaction.py). */
const KINDS = {
  request: ["inputs", "talk"],
  inputs: ["inputs", "outputs", "talk"],
  outputs: ["outputs", "talk"],
  bodies: ["inputs", "outputs", "talk", "prompts"],
  errors: ["inputs", "outputs", "talk", "prompts", "errors"],
} as const;

export type Part = keyof typeof KINDS;

export function useIsHidden(part: Part): boolean {
  return useRun((state) => KINDS[part].some((kind) => state.server?.hidden.includes(kind)));
}

/** Show a part, or that it is hidden. */
export function Hideable({ part, children }: { part: Part; children: ReactNode }): ReactNode {
  return useIsHidden(part) ? <HiddenNote /> : children;
}

export function HiddenNote(): ReactNode {
  return (
    <p data-tone="neutral" data-border="dashed" className="rounded bg-tone-soft px-3 py-2 text-ink-2">
      <span aria-hidden="true">⊘ </span>
      {texts.share.hiddenPart}
    </p>
  );
}
