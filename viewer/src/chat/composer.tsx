/** Where a message is written: Enter sends it, Shift and Enter break the line, files are stored when they are chosen. */
import { useId, useRef, useState, type FormEvent, type KeyboardEvent, type ReactNode } from "react";

import { texts } from "../texts";
import { bytes } from "../ui/format";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";

const t = texts.chat;
const MAX_CHARS = 100_000;
const MAX_FILES = 20;

export interface SentFile {
  name: string;
  descriptor: unknown;
}

interface Props {
  /** Return whether the message was accepted; one that was not stays in the field. */
  onSend: (text: string, files: readonly SentFile[]) => Promise<boolean>;
  onStop: () => void;
  /** Whether an answer is being written, which can be stopped. */
  isRunning: boolean;
  /** Why nothing can be sent; null if it can. */
  refusal: string | null;
  upload: (file: File) => Promise<unknown>;
}

interface Attached {
  key: number;
  name: string;
  bytes: number;
  state: "busy" | "ready" | "failed";
  descriptor?: unknown;
  error?: string;
}

export function Composer({ onSend, onStop, isRunning, refusal, upload }: Props): ReactNode {
  const id = useId();
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const nextKey = useRef(0);
  const [text, setText] = useState("");
  const [files, setFiles] = useState<readonly Attached[]>([]);
  const ready = files.flatMap((file) => (file.state === "ready" ? [{ name: file.name, descriptor: file.descriptor }] : []));
  const isEmpty = text.trim() === "" && !ready.length;
  const maySend = !isRunning && refusal === null && !isEmpty && files.every((file) => file.state === "ready");

  const attach = async (file: File): Promise<void> => {
    const key = nextKey.current++;
    const change = (changed: Partial<Attached>): void => setFiles((now) => now.map((each) => (each.key === key ? { ...each, ...changed } : each)));
    setFiles((now) => [...now, { key, name: file.name, bytes: file.size, state: "busy" }]);
    try {
      change({ state: "ready", descriptor: await upload(file) });
    } catch (failure) {
      change({ state: "failed", error: failure instanceof Error ? failure.message : String(failure) });
    }
  };
  const send = async (): Promise<void> => {
    if (!maySend) return;
    const [sentText, sentFiles] = [text, files];
    setText("");
    setFiles([]);
    if (await onSend(sentText.trim(), ready)) return;
    setText((now) => now || sentText);
    setFiles((now) => (now.length ? now : sentFiles));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    void send();
  };
  return (
    <form
      onSubmit={(event: FormEvent) => {
        event.preventDefault();
        void send();
      }}
      className="shrink-0 border-t border-line bg-panel p-2"
    >
      <div className="mx-auto flex max-w-3xl flex-col gap-2">
        {files.length ? (
          <ul aria-label={t.attached} className="flex flex-wrap gap-2">
            {files.map((file) => (
              <FileChip key={file.key} file={file} onRemove={() => setFiles((now) => now.filter((each) => each !== file))} />
            ))}
          </ul>
        ) : null}
        <div className="flex items-end gap-2">
          <button
            type="button"
            aria-label={t.attach}
            title={t.attach}
            disabled={files.length >= MAX_FILES || refusal !== null}
            onClick={() => picker.current?.click()}
            className="inline-flex size-9 shrink-0 items-center justify-center rounded border border-line-strong bg-surface text-lg enabled:hover:bg-raised disabled:text-ink-2"
          >
            <span aria-hidden="true">+</span>
          </button>
          <input
            ref={picker}
            type="file"
            multiple
            tabIndex={-1}
            aria-label={t.attach}
            className="sr-only"
            onChange={(event) => {
              for (const file of Array.from(event.target.files ?? []).slice(0, MAX_FILES - files.length)) void attach(file);
              event.target.value = "";
              field.current?.focus();
            }}
          />
          <label htmlFor={id} className="sr-only">
            {t.message}
          </label>
          <textarea
            ref={field}
            id={id}
            rows={1}
            value={text}
            maxLength={MAX_CHARS}
            placeholder={refusal ?? t.placeholder}
            aria-describedby={`${id}-keys`}
            onChange={(event) => setText(event.target.value)}
            onKeyDown={onKeyDown}
            className="field-sizing-content max-h-[30dvh] min-h-9 min-w-0 flex-1 resize-none rounded border border-line-strong bg-surface px-2 py-1.5 placeholder:text-ink-2"
          />
          <span id={`${id}-keys`} className="sr-only">
            {t.keys}
          </span>
          {isRunning ? (
            <Button onClick={onStop} className="min-h-9! border-red! px-3! font-medium text-red!">
              {t.stop}
            </Button>
          ) : (
            <Button type="submit" disabled={!maySend} className="min-h-9! px-3! font-medium enabled:border-accent! enabled:bg-accent! enabled:text-surface! enabled:hover:opacity-90">
              {t.send}
            </Button>
          )}
        </div>
      </div>
    </form>
  );
}

function FileChip({ file, onRemove }: { file: Attached; onRemove: () => void }): ReactNode {
  const name = visibleName(file.name, 80);
  return (
    <li data-tone={file.state === "failed" ? "red" : "neutral"} className="flex max-w-full items-center gap-1 rounded border border-line-strong bg-surface pl-2">
      <span className="min-w-0 truncate">
        <bdi>{name}</bdi> <span className={file.state === "failed" ? "text-tone" : "text-ink-2"}>{noteOf(file)}</span>
      </span>
      <button type="button" aria-label={t.removeFile(name)} onClick={onRemove} className="inline-flex size-6 shrink-0 items-center justify-center rounded hover:bg-raised">
        ✕
      </button>
    </li>
  );
}

function noteOf(file: Attached): string {
  if (file.state === "busy") return t.uploading;
  return file.state === "failed" ? visibleName(file.error ?? "", 200) : bytes(file.bytes);
}
