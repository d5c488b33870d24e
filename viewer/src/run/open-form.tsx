/** An open form of a run: its fields by type, or the question whether a node has acted. */
import { useId, useRef, useState, type FormEvent, type ReactNode } from "react";

import { ApiError, newIdempotencyKey } from "../api/request";
import type { Answers } from "../api/runs";
import type { FormField, OpenForm } from "../store/run";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { bytes } from "../ui/format";
import { forgetKept, useKept } from "../ui/kept";
import { Markdown } from "../ui/markdown";
import { Button } from "../ui/parts";
import { useFocusOfContent } from "../ui/returned-focus";
import { visibleName } from "../ui/visible-text";
import { answersOf, outcomeAnswers, questionOf, typedInto, type FieldErrors, type Typed } from "./form-values";
import { useNodeNames, useRun, useRunContext, type RunActions } from "./use-run";

const t = texts.forms;
const NOTHING: Typed = {};
const MAX_OPTIONS = 1000;
const CONTROL = "min-h-8 w-full max-w-lg rounded border border-line-strong bg-surface px-2 aria-invalid:border-red";
const SUBMIT = "border-accent! bg-accent! px-3! py-1! font-medium text-surface! enabled:hover:opacity-90 disabled:opacity-60";

/** Told with each answer whether the form had been answered before. */
type OnConflict = (wasAnswered: boolean) => void;

/**
 * Sending answers once: the key belongs to the form that was shown, so a second click has no effect of its own.
 * `onConflict` is told whether somebody else was first; without it, that is the error.
 */
export function useSender(
  actions: Pick<RunActions, "answer">,
  onConflict?: OnConflict,
): { send: (answers: Answers, done: string) => Promise<boolean>; isBusy: boolean; error: string | null } {
  const key = useRef(newIdempotencyKey());
  const announce = useAnnounce();
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const send = async (answers: Answers, done: string): Promise<boolean> => {
    setBusy(true);
    setError(null);
    onConflict?.(false);
    try {
      await actions.answer(answers, key.current);
      announce(done);
      return true;
    } catch (failure) {
      if (failure instanceof ApiError && failure.status >= 400 && failure.status < 500) key.current = newIdempotencyKey();
      const isConflict = failure instanceof ApiError && failure.status === 409;
      if (isConflict && onConflict) onConflict(true);
      else setError(isConflict ? t.conflict : failure instanceof Error ? failure.message : String(failure));
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { send, isBusy, error };
}

/** The open forms of a run. If somebody else was first, the form is gone: a note says so in its place. */
export function OpenForms({ forms }: { forms: readonly OpenForm[] }): ReactNode {
  const [wasAnswered, setAnswered] = useState(false);
  return (
    <>
      {wasAnswered ? <AnsweredNote /> : null}
      {forms.map((form) => (
        <OpenFormPane key={form.nodeId} form={form} onConflict={setAnswered} />
      ))}
    </>
  );
}

export function AnsweredNote(): ReactNode {
  return (
    <p role="alert" data-tone="amber" className="rounded bg-tone-soft p-2 text-tone">
      {t.conflict}
    </p>
  );
}

export function OpenFormPane({ form, onConflict }: { form: OpenForm; onConflict: OnConflict }): ReactNode {
  const { actions } = useRunContext();
  const runId = useRun((state) => state.header?.id ?? "");
  const mayAnswer = useRun((state) => state.server?.may.answer ?? false);
  const node = questionOf(form);
  return (
    <section aria-label={texts.talk.form} data-tone="violet" data-border="dashed" className="rounded bg-tone-soft p-3">
      <h2 className="mb-1 font-semibold text-tone">{texts.talk.form}</h2>
      {form.tips ? <Markdown text={form.tips} /> : null}
      {actions && mayAnswer ? (
        node === null ? <FormFields form={form} actions={actions} keptAs={`form ${runId} ${form.nodeId}`} onConflict={onConflict} /> : <Question node={node} actions={actions} onConflict={onConflict} />
      ) : (
        <>
          <FieldList form={form} />
          {actions ? <p className="mt-2 text-ink-2">{t.readOnly}</p> : null}
        </>
      )}
    </section>
  );
}

function FieldList({ form }: { form: OpenForm }): ReactNode {
  return (
    <ul className="list-disc pl-5">
      {form.fields.map((field) => (
        <li key={field.key}>
          <bdi>{visibleName(field.name, 120)}</bdi> <span className="text-ink-2">({visibleName(field.type, 30)})</span>
        </li>
      ))}
    </ul>
  );
}

interface FormFieldsProps {
  form: OpenForm;
  actions: Pick<RunActions, "answer" | "upload">;
  /** Under which name what was typed is kept, so that it survives a sign-in. */
  keptAs: string;
  submit?: string;
  onConflict?: OnConflict;
}

/** The fields of a form, with a button that sends the answers. */
export function FormFields({ form, actions, keptAs, submit: submitText = t.submit, onConflict }: FormFieldsProps): ReactNode {
  useFocusOfContent();
  const [changed, setChanged] = useKept<Typed>(keptAs, NOTHING);
  const typed = typedInto(form, changed);
  const [errors, setErrors] = useState<FieldErrors>({});
  const { send, isBusy, error } = useSender(actions, onConflict);
  const id = useId();
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    const result = answersOf(form, typed);
    setErrors("errors" in result ? result.errors : {});
    if ("answers" in result) void send(result.answers, t.sent).then((isSent) => isSent && forgetKept(keptAs));
    else document.getElementById(`${id}-${form.fields.findIndex((field) => field.key in result.errors)}`)?.focus();
  };
  return (
    <form noValidate onSubmit={submit} className="flex flex-col gap-2">
      {form.fields.map((field, place) => (
        <FormControl
          key={field.key}
          id={`${id}-${place}`}
          field={field}
          value={typed[field.key]}
          error={errors[field.key]}
          actions={actions}
          onChange={(value) => setChanged((known) => ({ ...known, [field.key]: value }))}
        />
      ))}
      <SendError error={error} />
      <Button type="submit" disabled={isBusy} className={`self-start ${SUBMIT}`}>
        {submitText}
      </Button>
    </form>
  );
}

interface ControlProps {
  id: string;
  field: FormField;
  value: unknown;
  error: string | undefined;
  actions: Pick<RunActions, "upload">;
  onChange: (value: unknown) => void;
}

/** A field with its label and what is wrong with it. */
export function FormControl(props: ControlProps): ReactNode {
  const { id, field, error } = props;
  return (
    <div>
      <label htmlFor={id} className="block font-medium">
        <bdi>{visibleName(field.name, 120)}</bdi>
        {field.isOptional ? <span className="font-normal text-ink-2"> ({t.optional})</span> : <span aria-hidden="true"> *</span>}
      </label>
      <Control {...props} />
      {error === undefined ? null : (
        <p id={`${id}-error`} className="text-red">
          {error}
        </p>
      )}
    </div>
  );
}

/** The control of a field by its type. */
export function Control({ id, field, value, error, actions, onChange }: ControlProps): ReactNode {
  const shared = {
    id,
    "aria-invalid": error !== undefined,
    "aria-required": !field.isOptional,
    ...(error === undefined ? {} : { "aria-describedby": `${id}-error` }),
  };
  const text = typeof value === "string" || typeof value === "number" ? String(value) : "";
  switch (field.type) {
    case "paragraph":
      return <textarea {...shared} rows={4} className={CONTROL} value={text} onChange={(event) => onChange(event.target.value)} />;
    case "boolean":
      return (
        <span className="flex min-h-6 items-center gap-1">
          <input {...shared} type="checkbox" className="size-5" checked={value === true} onChange={(event) => onChange(event.target.checked)} />
          {t.yes}
        </span>
      );
    case "options":
      return (
        <select {...shared} className={CONTROL} value={text} onChange={(event) => onChange(event.target.value)}>
          <option value="">{t.choose}</option>
          {field.options.slice(0, MAX_OPTIONS).map((option, place) => (
            <option key={place} value={option}>
              {visibleName(option, 120)}
            </option>
          ))}
          {field.options.length > MAX_OPTIONS ? <option disabled>{t.moreOptions(field.options.length - MAX_OPTIONS)}</option> : null}
        </select>
      );
    case "file":
      return <FileControl shared={shared} value={value} actions={actions} onChange={onChange} />;
    case "integer":
    case "number":
      return <input {...shared} inputMode="decimal" className={CONTROL} value={text} onChange={(event) => onChange(event.target.value)} />;
    default:
      return (
        <input
          {...shared}
          type={field.type === "password" ? "password" : "text"}
          autoComplete="off"
          className={CONTROL}
          value={text}
          onChange={(event) => onChange(event.target.value)}
        />
      );
  }
}

interface FileControlProps extends Pick<ControlProps, "value" | "actions" | "onChange"> {
  shared: Readonly<Record<string, unknown>>;
}

function FileControl({ shared, value, actions, onChange }: FileControlProps): ReactNode {
  const [note, setNote] = useState("");
  const store = async (file: File | undefined): Promise<void> => {
    onChange(null);
    if (!file) return;
    setNote(t.uploading);
    try {
      onChange(await actions.upload(file));
      setNote("");
    } catch (failure) {
      setNote(failure instanceof Error ? failure.message : String(failure));
    }
  };
  return (
    <>
      <input {...shared} type="file" className="block max-w-full" onChange={(event) => void store(event.target.files?.[0])} />
      <span role="status" className="break-words">
        {note ? visibleName(note, 400) : storedName(value)}
      </span>
    </>
  );
}

/** Return the name and size of a file that is stored, as the upload has described it. */
function storedName(value: unknown): string {
  const { name, size } = (typeof value === "object" && value !== null ? value : {}) as Readonly<Record<string, unknown>>;
  if (typeof name !== "string") return "";
  return t.stored(visibleName(name, 120), typeof size === "number" ? bytes(size) : "");
}

function Question({ node, actions, onConflict }: { node: string; actions: RunActions; onConflict: OnConflict }): ReactNode {
  const names = useNodeNames();
  const id = useId();
  const [outputs, setOutputs] = useState("");
  const [invalid, setInvalid] = useState<string | null>(null);
  const { send, isBusy, error } = useSender(actions, onConflict);
  const answer = (outcome: "happened" | "again"): void => {
    const result = outcomeAnswers(node, outcome, outputs);
    setInvalid("error" in result ? result.error : null);
    if ("answers" in result) void send(result.answers, t.sent);
  };
  return (
    <div className="flex flex-col gap-2">
      <p className="font-medium">{t.question(visibleName(names.get(node) ?? node, 80))}</p>
      <label htmlFor={id}>{t.outputs}</label>
      <textarea id={id} rows={2} aria-invalid={invalid !== null} className={`${CONTROL} font-mono text-xs`} value={outputs} onChange={(event) => setOutputs(event.target.value)} />
      <SendError error={invalid ?? error} />
      <div className="flex gap-2">
        <Button disabled={isBusy} onClick={() => answer("happened")} className={SUBMIT}>
          {t.happened}
        </Button>
        <Button disabled={isBusy} onClick={() => answer("again")} className="px-3! py-1!">
          {t.again}
        </Button>
      </div>
    </div>
  );
}

export function SendError({ error }: { error: string | null }): ReactNode {
  return error === null ? null : (
    <p role="alert" className="text-red">
      {visibleName(error, 500)}
    </p>
  );
}
