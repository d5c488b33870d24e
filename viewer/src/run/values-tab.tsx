/** Inputs and outputs of a step: each value as JSON, text or Markdown, whole, as a file, and beside that of the step before. */
import { lazy, Suspense, useCallback, useEffect, useId, useMemo, useState, type ReactNode } from "react";

import { texts } from "../texts";
import { bytes } from "../ui/format";
import { Button, CopyButton, Empty } from "../ui/parts";
import { asJson, LongText, NamedValue, Value } from "../ui/values";
import { visibleName } from "../ui/visible-text";
import type { ValueKind, Values } from "./contents";
import { Loading } from "./loading";
import { OwnFiles } from "./own-files";
import { useLoaded, useNodeNames, useRunContext, useRunState } from "./use-run";

const t = texts.inspector;
const Markdown = lazy(() => import("../ui/markdown").then((module) => ({ default: module.Markdown })));
const TextDiff = lazy(() => import("../ui/text-diff"));
const FORMATS = ["tree", "text", "markdown"] as const;
const MAX_MARKDOWN_CHARS = 100_000;
const MAX_DIFF_CHARS = 300_000;
const REMEMBERED = "easel.formats";
const MAX_REMEMBERED = 200;

type Format = (typeof FORMATS)[number];

export function ValuesTab({ stepId, which }: { stepId: string; which: "input" | "output" }): ReactNode {
  const { contents } = useRunContext();
  const names = useNodeNames();
  const state = useRunState();
  const version = state.steps.find(stepId)?.status ?? ""; // a step that goes on has other values
  const key = `${stepId} ${version}`;
  const loaded = useLoaded(key, useCallback(() => contents.stepValues(stepId), [contents, stepId]));
  const nodeId = state.steps.find(stepId)?.nodeId ?? "";
  const before = useStepBefore(stepId);
  const kind: ValueKind = which === "input" ? "inputs" : "outputs";
  return (
    <Loading loaded={loaded}>
      {(values) => {
        const shown = values[kind];
        const variables = which === "output" ? values.variables : {};
        const written = which === "output" ? Object.entries(values.written) : [];
        const isEmpty = !Object.keys(shown).length && !Object.keys(variables).length && !written.length;
        return (
          <>
            {isEmpty ? <Empty>{t.noValues[which]}</Empty> : <StepValues stepId={stepId} nodeId={nodeId} kind={kind} values={shown} before={before} />}
            {Object.keys(variables).length ? (
              <Group title={t.variables}>
                <StepValues stepId={stepId} nodeId={nodeId} kind="variables" values={variables} before={before} />
              </Group>
            ) : null}
            {written.map(([node, outputs]) => (
              <Group key={node} title={t.containerOutputs(visibleName(names.get(node) ?? node, 60))}>
                {Object.entries(outputs).map(([name, value]) => (
                  <NamedValue key={name} name={name} value={value} />
                ))}
              </Group>
            ))}
          </>
        );
      }}
    </Loading>
  );
}

/** Return the step of the same node before a step, in canonical order. */
function useStepBefore(stepId: string): string | null {
  const { steps } = useRunState();
  const row = steps.rowOf(stepId);
  const nodeId = row === null ? null : steps.text(row, "nodeId");
  let best: number | null = null;
  for (let each = 0; row !== null && each < steps.count; each++) {
    if (each === row || steps.text(each, "nodeId") !== nodeId || steps.orderKey(each) >= steps.orderKey(row)) continue;
    if (best === null || steps.orderKey(each) > steps.orderKey(best)) best = each;
  }
  return best === null ? null : steps.id(best);
}

function Group({ title, children }: { title: string; children: ReactNode }): ReactNode {
  return (
    <section className="mt-3">
      <h3 className="font-semibold">{title}</h3>
      {children}
    </section>
  );
}

interface ValuesProps {
  stepId: string;
  nodeId: string;
  kind: ValueKind;
  values: Values;
  before: string | null;
}

function StepValues({ stepId, nodeId, kind, values, before }: ValuesProps): ReactNode {
  return Object.entries(values).map(([name, value]) => (
    <StepValue key={name} stepId={stepId} nodeId={nodeId} kind={kind} name={name} value={value} before={before} />
  ));
}

type ValueProps = Omit<ValuesProps, "values"> & { name: string; value: unknown };

function StepValue({ stepId, nodeId, kind, name, value: stored, before }: ValueProps): ReactNode {
  const { contents } = useRunContext();
  const id = useId();
  const cut = cutBytes(stored);
  const [whole, setWhole] = useState<{ value: unknown } | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [format, setFormat] = useFormat(`${nodeId} ${kind} ${name}`, typeof stored === "string" || cut !== null ? "text" : "tree");
  const [isDiff, setDiff] = useState(false);
  const value = whole ? whole.value : stored;
  const isText = typeof value === "string" || (cut !== null && whole === null);
  const size = useMemo(() => cut ?? sizeOf(value), [cut, value]);
  const hasWhole = contents.wholeValue !== undefined;
  const load = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      setWhole({ value: await contents.wholeValue?.(stepId, kind, name) });
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    } finally {
      setBusy(false);
    }
  };
  // the server has all of a value that was cut, and all digits of the numbers in JSON
  const copied = (): string | Promise<string> =>
    typeof value === "string" ? value : (contents.valueText?.(stepId, kind, name) ?? asJson(value));
  return (
    <section aria-labelledby={id} className="border-b border-line py-2 last:border-b-0">
      <div className="flex flex-wrap items-center gap-1">
        <span id={id} className="min-w-0 flex-1 basis-24 truncate font-mono text-xs font-semibold">
          <bdi>{visibleName(name)}</bdi>
        </span>
        <span className="text-xs text-ink-2">{size === null ? "" : bytes(size)}</span>
        <FormatChoice format={format} isText={isText} onFormat={setFormat} />
        {before === null ? null : (
          <Button aria-pressed={isDiff} title={t.diffTitle} onClick={() => setDiff(!isDiff)}>
            {t.diff}
          </Button>
        )}
        <Download stepId={stepId} kind={kind} name={name} value={value} isCut={cut !== null && whole === null} />
        <CopyButton text={copied} label={`${texts.copy}: ${visibleName(name, 40)}`} />
      </div>
      {cut !== null && whole === null && hasWhole ? (
        <>
          <p data-tone="amber" className="text-tone">
            {texts.values.whole(bytes(cut))}
          </p>
          {error === null ? (
            <button type="button" disabled={isBusy} onClick={() => void load()} className="min-h-6 text-accent underline">
              {isBusy ? t.loading : texts.values.showWhole}
            </button>
          ) : (
            <p role="alert" className="text-red">
              {error}
            </p>
          )}
          <LongText text={previewOf(stored)} />
        </>
      ) : (
        <Shown value={value} format={format} />
      )}
      <OwnFiles value={value} />
      {isDiff && before !== null ? <Difference before={before} kind={kind} name={name} value={value} /> : null}
    </section>
  );
}

function Shown({ value, format }: { value: unknown; format: Format }): ReactNode {
  if (format === "markdown" && typeof value === "string") {
    return (
      <Suspense fallback={<Empty>{t.loading}</Empty>}>
        <Markdown text={value.slice(0, MAX_MARKDOWN_CHARS)} />
      </Suspense>
    );
  }
  if (cutBytes(value) !== null) return <Value value={value} />;
  if (format === "text" && typeof value !== "string") return <LongText text={asJson(value)} />;
  if (format === "tree" && typeof value === "string") return <Value value={parsed(value)} />;
  return <Value value={value} />;
}

/** Return what a text that is JSON holds, if that is a list or an object. */
function parsed(text: string): unknown {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

function FormatChoice({ format, isText, onFormat }: { format: Format; isText: boolean; onFormat: (format: Format) => void }): ReactNode {
  return (
    <select
      aria-label={t.format}
      value={format}
      onChange={(event) => onFormat(FORMATS.find((each) => each === event.target.value) ?? "text")}
      className="min-h-6 rounded border border-line-strong bg-surface text-xs"
    >
      {FORMATS.filter((each) => isText || each !== "markdown").map((each) => (
        <option key={each} value={each}>
          {t.formats[each]}
        </option>
      ))}
    </select>
  );
}

/** Return how a value of a node is shown, and what changes that; this browser remembers it. */
function useFormat(key: string, otherwise: Format): [Format, (format: Format) => void] {
  const [format, setFormat] = useState<Format>(() => FORMATS.find((each) => each === readFormats()[key]) ?? otherwise);
  const change = (next: Format): void => {
    setFormat(next);
    const others = Object.entries(readFormats()).filter(([each]) => each !== key);
    try {
      localStorage.setItem(REMEMBERED, JSON.stringify(Object.fromEntries([...others, [key, next]].slice(-MAX_REMEMBERED))));
    } catch {
      return; // without storage it is not remembered
    }
  };
  return [format, change];
}

function readFormats(): Record<string, unknown> {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(REMEMBERED) ?? "{}");
    return typeof stored === "object" && stored !== null ? (stored as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

interface DownloadProps {
  stepId: string;
  kind: ValueKind;
  name: string;
  value: unknown;
  isCut: boolean;
}

/** A link that stores the value as a file: from the server, or what the page has of it. */
function Download({ stepId, kind, name, value, isCut }: DownloadProps): ReactNode {
  const { contents } = useRunContext();
  const address = contents.valueUrl?.(stepId, kind, name);
  const [blobUrl, setBlobUrl] = useState<string | null>(null);
  useEffect(() => () => (blobUrl === null ? undefined : URL.revokeObjectURL(blobUrl)), [blobUrl]);
  const look = "inline-flex size-6 items-center justify-center rounded text-ink-2 hover:bg-raised";
  const label = `${t.download}: ${visibleName(name, 40)}`;
  if (address === undefined && isCut) return null;
  if (address !== undefined) {
    return (
      <a href={address} download aria-label={label} title={label} className={look}>
        <span aria-hidden="true">⤓</span>
      </a>
    );
  }
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      className={look}
      onClick={() => {
        const isText = typeof value === "string";
        const url = URL.createObjectURL(new Blob([isText ? value : asJson(value)], { type: isText ? "text/plain" : "application/json" }));
        setBlobUrl(url);
        const link = document.createElement("a");
        link.href = url;
        link.download = `${name.replace(/[^\w.-]+/g, "_").slice(0, 80)}.${isText ? "txt" : "json"}`;
        link.click();
      }}
    >
      <span aria-hidden="true">⤓</span>
    </button>
  );
}

/** The value of the step before beside this one. */
function Difference({ before, kind, name, value }: { before: string; kind: ValueKind; name: string; value: unknown }): ReactNode {
  const { contents } = useRunContext();
  const loaded = useLoaded(before, useCallback((id: string) => contents.stepValues(id), [contents]));
  return (
    <Loading loaded={loaded}>
      {(values) => {
        const [old, fresh] = [textOf(values[kind][name]), textOf(value)];
        if (old === fresh) return <p className="text-ink-2">{t.same}</p>;
        if (old.length + fresh.length > MAX_DIFF_CHARS) return <p className="text-ink-2">{t.tooLong}</p>;
        return (
          <Suspense fallback={<Empty>{t.loading}</Empty>}>
            <TextDiff before={old} after={fresh} labels={[t.before, t.after]} />
          </Suspense>
        );
      }}
    </Loading>
  );
}

function textOf(value: unknown): string {
  return value === undefined ? "" : typeof value === "string" ? value : asJson(value);
}

/** Return how many bytes a cut or lost value has; null if it is whole. */
function cutBytes(value: unknown): number | null {
  if (typeof value !== "object" || value === null || !("$preview" in value)) return null;
  return "bytes" in value && typeof value.bytes === "number" ? value.bytes : 0;
}

function previewOf(value: unknown): string {
  return typeof value === "object" && value !== null && "$preview" in value && typeof value.$preview === "string" ? value.$preview : "";
}

/** Return the bytes of a value as UTF-8; null if it is nested too deeply to be written. */
function sizeOf(value: unknown): number | null {
  if (typeof value === "object" && value !== null && "$gone" in value && "bytes" in value && typeof value.bytes === "number") return value.bytes;
  const text = typeof value === "string" ? value : asJson(value, 0);
  return text === texts.values.deep ? null : new Blob([text]).size;
}
