/** Where a message is written: its text, its files, what the agent begins with, and how it is sent while a turn runs. */
import { useId, useRef, useState, type KeyboardEvent, type ReactNode } from "react";

import type { OnBusy, StartBody } from "../api/play";
import { typedInto, type FieldErrors, type Typed } from "../run/form-values";
import { FormControl } from "../run/open-form";
import type { OpenForm } from "../store/run";
import { texts } from "../texts";
import { bytes } from "../ui/format";
import { forgetKept, useKept } from "../ui/kept";
import { Menu } from "../ui/menu";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { inputsOf, mayBeWordless, type Begin } from "./begin";
import { FailureNotice } from "./findings";
import { useAttachments, type Attachments } from "./use-attachments";
import type { Sender } from "./use-send";

const t = texts.play;
const MAIN = "border-accent! bg-accent! px-3! font-medium text-surface! enabled:hover:opacity-90 disabled:opacity-60";

interface Props {
  agentId: string;
  /** Names what is typed here, so that it is kept apart from other conversations. */
  keptAs: string;
  begin: Begin;
  /** Whether a turn of the conversation runs or is queued. */
  isActive: boolean;
  /** Why nothing can be sent now. */
  blocked: string | null;
  sender: Sender;
  onSend: (body: StartBody) => Promise<boolean>;
  onStop: (() => void) | null;
}

const NOTHING: Typed = {};

export function Composer({ agentId, keptAs, begin, isActive, blocked, sender, onSend, onStop }: Props): ReactNode {
  const [text, setText] = useKept(`${keptAs} text`, "");
  const [typed, setTyped] = useKept<Typed>(`${keptAs} form`, NOTHING);
  const [errors, setErrors] = useState<FieldErrors>({});
  const attachments = useAttachments(agentId);
  const id = useId();
  const { form } = begin;
  const isEmpty = text.trim() === "" && !attachments.files.length && !mayBeWordless(begin);
  const isRefused = blocked !== null || isEmpty || sender.isBusy || attachments.isUploading;

  const send = async (onBusy: OnBusy | undefined): Promise<void> => {
    if (isRefused) return;
    const result = inputsOf(form, typedInto(form, typed));
    setErrors("errors" in result ? result.errors : {});
    if ("errors" in result) {
      document.getElementById(`${id}-${form.fields.findIndex((field) => field.key in result.errors)}`)?.focus();
      return;
    }
    const files = attachments.files.map((each) => each.descriptor);
    const isAccepted = await onSend({
      ...(text.trim() === "" ? {} : { query: text }),
      ...(form.fields.length ? { inputs: result.inputs } : {}),
      ...(files.length ? { files } : {}),
      ...(onBusy === undefined ? {} : { on_busy: onBusy }),
    });
    if (!isAccepted) return;
    forgetKept(`${keptAs} text`);
    setText("");
    attachments.clear();
  };
  const sendByDefault = (): void => void send(isActive ? "enqueue" : undefined);
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    if (isActive && (event.ctrlKey || event.metaKey)) void send("interrupt");
    else sendByDefault();
  };

  return (
    <form
      aria-label={t.message}
      className="flex shrink-0 flex-col gap-2 border-t border-line p-3"
      onSubmit={(event) => {
        event.preventDefault();
        sendByDefault();
      }}
    >
      {sender.failure === null ? null : <FailureNotice failure={sender.failure} />}
      {form.fields.length ? (
        <BeginForm
          id={id}
          form={form}
          typed={typedInto(form, typed)}
          errors={errors}
          actions={attachments}
          onChange={(key, value) => setTyped((known) => ({ ...known, [key]: value }))}
        />
      ) : null}
      <AttachedFiles attachments={attachments} />
      <textarea
        aria-label={t.message}
        aria-describedby={`${id}-hint`}
        placeholder={t.placeholder}
        rows={2}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKeyDown}
        className="max-h-48 min-h-13 w-full resize-y rounded border border-line-strong bg-surface px-2 py-1 text-sm [field-sizing:content]"
      />
      <p id={`${id}-hint`} className="text-xs text-ink-2">
        {blocked ?? (isActive ? t.busyHint : t.hint)}
      </p>
      <div className="flex flex-wrap items-center gap-2">
        <AttachButton onFiles={attachments.add} isDisabled={blocked !== null} />
        <span className="flex-1" />
        {onStop === null ? null : <Button onClick={onStop}>■ {t.stop}</Button>}
        <Button type="submit" disabled={isRefused} className={MAIN}>
          {isActive ? t.sendAfter : begin.mode === "task" ? t.runIt : t.send}
        </Button>
        {isActive ? (
          <Menu
            items={[
              { label: `${t.sendNow}: ${t.sendNowHint}`, onSelect: () => void send("interrupt"), isDisabled: isRefused },
              { label: `${t.sendAfter}: ${t.sendAfterHint}`, onSelect: () => void send("enqueue"), isDisabled: isRefused },
            ]}
          >
            <Button aria-label={t.sendAs}>▾</Button>
          </Menu>
        ) : null}
      </div>
    </form>
  );
}

interface BeginFormProps {
  id: string;
  form: OpenForm;
  typed: Typed;
  errors: FieldErrors;
  actions: Pick<Attachments, "upload">;
  onChange: (key: string, value: unknown) => void;
}

function BeginForm({ id, form, typed, errors, actions, onChange }: BeginFormProps): ReactNode {
  return (
    <details open className="rounded border border-line bg-panel">
      <summary className="min-h-6 cursor-pointer px-2 py-1 font-medium">{t.form}</summary>
      <div className="flex max-h-64 flex-col gap-2 overflow-auto p-2 pt-0">
        {form.fields.map((field, place) => (
          <FormControl
            key={field.key}
            id={`${id}-${place}`}
            field={field}
            value={typed[field.key]}
            error={errors[field.key]}
            actions={actions}
            onChange={(value) => onChange(field.key, value)}
          />
        ))}
      </div>
    </details>
  );
}

function AttachButton({ onFiles, isDisabled }: { onFiles: (files: readonly File[]) => void; isDisabled: boolean }): ReactNode {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        onChange={(event) => {
          onFiles([...(event.target.files ?? [])]);
          event.target.value = "";
        }}
      />
      <Button disabled={isDisabled} onClick={() => input.current?.click()}>
        {t.attach}
      </Button>
    </>
  );
}

function AttachedFiles({ attachments: { files, error, remove } }: { attachments: Attachments }): ReactNode {
  return (
    <>
      {error === null ? null : (
        <p role="alert" className="break-words text-red">
          {visibleName(error, 400)}
        </p>
      )}
      {files.length ? (
        <ul className="flex flex-wrap gap-1">
          {files.map((file) => (
            <li key={file.id} className="flex max-w-full items-center gap-1 rounded border border-line bg-panel pl-2">
              <bdi className="min-w-0 truncate">{visibleName(file.name, 60)}</bdi>
              <span className="shrink-0 text-ink-2">{file.descriptor === null ? t.uploading : bytes(file.size)}</span>
              <button
                type="button"
                aria-label={t.remove(visibleName(file.name, 60))}
                className="inline-flex size-6 shrink-0 items-center justify-center rounded hover:bg-raised"
                onClick={() => remove(file.id)}
              >
                ✕
              </button>
            </li>
          ))}
        </ul>
      ) : null}
    </>
  );
}
