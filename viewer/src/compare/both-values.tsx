/** A value of both sides: side by side with the differing words if it differs, once if it is the same. */
import { lazy, Suspense, useState, type ReactNode } from "react";

import { isObject } from "../run-file/rows";
import { texts } from "../texts";
import { bytes } from "../ui/format";
import { Button } from "../ui/parts";
import { Value } from "../ui/values";
import { visibleName, visibleText } from "../ui/visible-text";

const TextDiff = lazy(() => import("../ui/text-diff"));
const t = texts.compare.pane;

/** One side: the value, or the beginning of its text (`cut`); of a value in the file storage only its size. */
export interface Side {
  value: unknown;
  chars: number;
  cut: boolean;
}

export interface Both {
  name: string;
  /** `same`, `changed`, `only_a` or `only_b`. */
  kind: string;
  a: Side | null;
  b: Side | null;
}

export function sideOf(value: unknown): Side | null {
  if (!isObject(value)) return null;
  return { value: value.value ?? null, chars: typeof value.chars === "number" ? value.chars : 0, cut: value.cut === true };
}

export function textOf(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
}

interface Props {
  both: Both;
  isOpen: boolean;
  /** Loads both values whole, where they were cut. */
  loadWhole?: (() => Promise<readonly [unknown, unknown]>) | undefined;
}

export function BothValues({ both, isOpen: isFirstOpen, loadWhole }: Props): ReactNode {
  const [isOpen, setOpen] = useState(isFirstOpen);
  const kind = { only_a: t.onlyA, only_b: t.onlyB, same: texts.compare.result.same }[both.kind] ?? texts.compare.result.differs;
  return (
    <details data-testid="both-values" data-name={both.name} data-kind={both.kind} open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)} className="border-b border-line py-1 last:border-b-0">
      <summary className="min-h-6 cursor-pointer">
        <span className="font-mono text-xs font-semibold">
          <bdi>{visibleName(both.name, 120)}</bdi>
        </span>{" "}
        <span data-tone={both.kind === "same" ? "green" : "amber"} className="text-tone">
          {kind}
        </span>
      </summary>
      {isOpen ? <Sides both={both} loadWhole={loadWhole} /> : null}
    </details>
  );
}

function Sides({ both, loadWhole }: { both: Both; loadWhole: Props["loadWhole"] }): ReactNode {
  const [whole, setWhole] = useState<readonly [unknown, unknown] | null>(null);
  const [error, setError] = useState<string | null>(null);
  const sides = [both.a, both.b].filter((side) => side !== null);
  const isCut = sides.some((side) => side.cut);
  const load = (): void => {
    loadWhole?.().then(setWhole, (failure: unknown) => setError(failure instanceof Error ? failure.message : String(failure)));
  };
  const note = isCut && !whole ? (
    <p className="flex flex-wrap items-center gap-2 text-ink-2">
      {t.beginning}
      {loadWhole && both.kind === "changed" ? <Button onClick={load}>{t.wholeValues}</Button> : null}
      {error === null ? null : <span className="text-red">{visibleText(error)}</span>}
    </p>
  ) : null;
  if (both.kind === "changed" && both.a && both.b) {
    const [a, b] = whole ?? [both.a.value, both.b.value];
    const isInFile = !whole && sides.some((side) => side.cut && side.value === null);
    return (
      <>
        {note}
        {isInFile ? <p>{sides.map((side) => t.inFile(bytes(side.chars))).join(" ")}</p> : <Diff a={a} b={b} name={both.name} />}
      </>
    );
  }
  const [side] = sides;
  return (
    <>
      {note}
      {side ? side.cut && side.value === null ? <p>{t.inFile(bytes(side.chars))}</p> : <Value value={side.value} /> : null}
    </>
  );
}

function Diff({ a, b, name }: { a: unknown; b: unknown; name: string }): ReactNode {
  const isText = typeof a === "string" && typeof b === "string";
  return (
    <Suspense fallback={<p className="text-ink-2">{texts.compare.loading}</p>}>
      <div className="flex text-ink-2" aria-hidden="true">
        <span className="flex-1">A</span>
        <span className="flex-1">B</span>
      </div>
      <TextDiff before={visibleText(textOf(a))} after={visibleText(textOf(b))} labels={[`A: ${visibleName(name, 80)}`, `B: ${visibleName(name, 80)}`]} language={isText ? "text" : "json"} />
    </Suspense>
  );
}
