/** Values of steps: texts and JSON trees of any size, of which a part is shown at first. */
import { useId, useState, type ReactNode } from "react";

import { texts } from "../texts";
import { bytes } from "./format";
import { CopyButton } from "./parts";
import { visibleName, visibleText } from "./visible-text";

const FIRST_CHARS = 16 * 1024;
const MORE_CHARS = 256 * 1024;
const FIRST_CHILDREN = 100;
const MORE_CHILDREN = 1000;
const OPEN_DEPTH = 1;

export function asJson(value: unknown, space = 2): string {
  try {
    return JSON.stringify(value, null, space) ?? "";
  } catch {
    return texts.values.deep;
  }
}

/** A text that wraps; a long one is shown in parts. `isProse`: what a person wrote to be read, not a value. */
export function LongText({ text, isProse = false }: { text: string; isProse?: boolean }): ReactNode {
  const [shown, setShown] = useState(FIRST_CHARS);
  const isCut = text.length > shown;
  return (
    <>
      <pre dir="auto" className={`break-words whitespace-pre-wrap [overflow-wrap:anywhere] ${isProse ? "font-sans" : "font-mono text-xs"}`}>
        {visibleText(isCut ? text.slice(0, shown) : text)}
        {isCut ? "…" : null}
      </pre>
      {isCut ? <MoreButton onClick={() => setShown(shown + MORE_CHARS)}>{texts.values.rest(bytes(text.length))}</MoreButton> : null}
    </>
  );
}

interface NamedValueProps {
  name: string;
  value: unknown;
  /** Loads the value whole, where it was cut. */
  loadWhole?: (() => Promise<unknown>) | undefined;
}

/** One value by its name, with a button that copies it. */
export function NamedValue({ name, value, loadWhole }: NamedValueProps): ReactNode {
  const id = useId();
  return (
    <section aria-labelledby={id} className="border-b border-line py-2 last:border-b-0">
      <div className="flex items-center gap-1">
        <span id={id} className="min-w-0 flex-1 truncate font-mono text-xs font-semibold">
          <bdi>{visibleName(name)}</bdi>
        </span>
        <CopyButton text={() => (typeof value === "string" ? value : asJson(value))} label={`${texts.copy}: ${visibleName(name, 40)}`} />
      </div>
      {loadWhole && isCut(value) ? <CutOfServer value={value} loadWhole={loadWhole} /> : <Value value={value} />}
    </section>
  );
}

export function Value({ value }: { value: unknown }): ReactNode {
  const cut = cutValue(value);
  if (cut) return <CutValue cut={cut} />;
  if (typeof value === "string") return value ? <LongText text={value} /> : <Note>{texts.values.empty}</Note>;
  return <JsonTree value={value} depth={0} />;
}

interface Cut {
  preview: string | null;
  size: number;
  error: string | null;
}

function cutValue(value: unknown): Cut | null {
  if (typeof value !== "object" || value === null) return null;
  const fields = value as Record<string, unknown>;
  const size = typeof fields.bytes === "number" ? fields.bytes : 0;
  if (fields.$gone === true) return { preview: null, size, error: typeof fields.error === "string" ? fields.error : texts.values.gone };
  return typeof fields.$preview === "string" ? { preview: fields.$preview, size, error: null } : null;
}

function CutValue({ cut }: { cut: Cut }): ReactNode {
  if (cut.error !== null) return <Note tone="red">{cut.error}</Note>;
  const note = cut.preview ? texts.values.cut(bytes(cut.size)) : texts.values.inStorage(bytes(cut.size));
  return (
    <>
      <Note tone="amber">{note}</Note>
      {cut.preview ? <LongText text={cut.preview} /> : null}
    </>
  );
}

/** The beginning of a value that a server has whole. */
function CutOfServer({ value, loadWhole }: { value: unknown; loadWhole: () => Promise<unknown> }): ReactNode {
  const [whole, setWhole] = useState<{ value: unknown } | null>(null);
  const [error, setError] = useState<string | null>(null);
  const cut = cutValue(value);
  if (whole || !cut) return <Value value={whole ? whole.value : value} />;
  const load = (): void => {
    loadWhole().then(
      (loaded) => setWhole({ value: loaded }),
      (failure: unknown) => setError(failure instanceof Error ? failure.message : String(failure)),
    );
  };
  return (
    <>
      <Note tone="amber">{texts.values.whole(bytes(cut.size))}</Note>
      {error === null ? <MoreButton onClick={load}>{texts.values.showWhole}</MoreButton> : <Note tone="red">{error}</Note>}
      {cut.preview ? <LongText text={cut.preview} /> : null}
    </>
  );
}

function Note({ children, tone = "neutral" }: { children: string; tone?: string }): ReactNode {
  return (
    <p data-tone={tone} className="text-tone">
      {visibleText(children)}
    </p>
  );
}

function MoreButton({ onClick, children }: { onClick: () => void; children: ReactNode }): ReactNode {
  return (
    <button type="button" onClick={onClick} className="min-h-6 text-accent underline">
      {children}
    </button>
  );
}

function JsonTree({ value, depth }: { value: unknown; depth: number }): ReactNode {
  if (typeof value !== "object" || value === null) return <Scalar value={value} />;
  return <Branch value={value} depth={depth} />;
}

function Scalar({ value }: { value: unknown }): ReactNode {
  if (typeof value === "string") {
    return <LongText text={JSON.stringify(value)} />;
  }
  return <span className="font-mono text-xs">{String(value)}</span>;
}

function Branch({ value, depth }: { value: object; depth: number }): ReactNode {
  const [isOpen, setOpen] = useState(depth < OPEN_DEPTH);
  const [shown, setShown] = useState(FIRST_CHILDREN);
  const isList = Array.isArray(value);
  const size = isList ? value.length : Object.keys(value).length;
  if (size === 0) return <span className="font-mono text-xs">{isList ? "[]" : "{}"}</span>;
  const entries: [string, unknown][] = isOpen ? childrenOf(value, shown) : [];
  return (
    <div>
      <button
        type="button"
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
        className="min-h-6 rounded px-1 font-mono text-xs text-ink-2 hover:bg-raised"
      >
        <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> {isList ? `list of ${size}` : `object of ${size}`}
      </button>
      {isOpen ? (
        <ul className="border-l border-line pl-3">
          {entries.map(([key, child]) => (
            <li key={key} className="flex gap-1.5">
              <span className="shrink-0 font-mono text-xs text-ink-2">
                <bdi>{visibleName(key, 80)}</bdi>:
              </span>
              <div className="min-w-0 flex-1">{isCut(child) ? <Value value={child} /> : <JsonTree value={child} depth={depth + 1} />}</div>
            </li>
          ))}
          {size > shown ? (
            <li>
              <MoreButton onClick={() => setShown(shown + MORE_CHILDREN)}>{texts.values.more(Math.min(MORE_CHILDREN, size - shown))}</MoreButton>
            </li>
          ) : null}
        </ul>
      ) : null}
    </div>
  );
}

function isCut(value: unknown): boolean {
  return cutValue(value) !== null;
}

function childrenOf(value: object, most: number): [string, unknown][] {
  if (Array.isArray(value)) return value.slice(0, most).map((child, index) => [String(index), child as unknown]);
  return Object.entries(value).slice(0, most);
}
