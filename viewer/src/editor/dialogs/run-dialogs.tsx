/** Starting the draft, or one of its nodes alone. */
import { useEffect, useId, useMemo, useRef, useState, type FormEvent, type ReactNode } from "react";

import { runNode, startDraft } from "../../api/drafts";
import { newIdempotencyKey } from "../../api/request";
import { uploadFile } from "../../api/runs";
import { answersOf, type FieldErrors } from "../../run/form-values";
import { Control, SendError } from "../../run/open-form";
import { useRunContext } from "../../run/use-run";
import type { FormField } from "../../store/run";
import { texts } from "../../texts";
import { Dialog } from "../../ui/dialog";
import { Button } from "../../ui/parts";
import { visibleName } from "../../ui/visible-text";
import { nodesOf, type Document } from "../document/document";
import { isObject, listOf, objectOf, textOf, type Json } from "../document/json";
import { useDocument, useEditor } from "../editor-context";
import { referencesIn } from "../run/node-inputs";
import { lastSteps, loadValues } from "../run/use-run-values";

const t = texts.editor.running;
const CONTROL = "min-h-8 w-full rounded border border-line-strong bg-surface px-2 py-1";
const SUBMIT = "self-end border-accent! bg-accent! px-3! py-1! font-medium text-surface! enabled:hover:opacity-90 disabled:opacity-60";

interface Props {
  onClose: () => void;
  onStarted: (runId: string) => void;
}

/** Send a start once: a click that is repeated has the same key until there is an answer. */
function useStart(start: (key: string) => Promise<{ run_id: string }>, onStarted: (runId: string) => void) {
  const key = useRef(newIdempotencyKey());
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const { notify } = useEditor();
  const submit = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      const { run_id: runId } = await start(key.current);
      notify(t.started);
      onStarted(runId);
    } catch (failure) {
      key.current = newIdempotencyKey();
      setError(failure instanceof Error ? failure.message : String(failure));
      setBusy(false);
    }
  };
  return { isBusy, error, submit };
}

let lastQuery = ""; // of this page, so that a draft is tried again without typing

export function RunDialog({ onClose, onStarted }: Props): ReactNode {
  const { agentId, session } = useEditor();
  const document = useDocument();
  const id = useId();
  const fields = useMemo(() => beginFields(document), [document]);
  const [query, setQuery] = useState(lastQuery);
  const [typed, setTyped] = useState<Readonly<Record<string, unknown>>>({});
  const [errors, setErrors] = useState<FieldErrors>({});
  const inputs = useRef<Readonly<Record<string, unknown>>>({});
  const { isBusy, error, submit } = useStart(async (key) => {
    lastQuery = query;
    await session.savedEtag();
    return startDraft(agentId, query, inputs.current, key);
  }, onStarted);
  const onSubmit = (event: { preventDefault: () => void }): void => {
    event.preventDefault();
    const result = answersOf({ nodeId: "begin", tips: null, fields }, typed);
    setErrors("errors" in result ? result.errors : {});
    if (!("answers" in result)) return;
    inputs.current = result.answers.inputs ?? {};
    void submit();
  };
  return (
    <Dialog title={t.title} onClose={onClose}>
      <form noValidate onSubmit={(event: FormEvent) => onSubmit(event)} onKeyDown={(event) => (event.key === "Enter" && (event.ctrlKey || event.metaKey) ? onSubmit(event) : undefined)} className="flex flex-col gap-3">
        <label>
          <span className="font-medium">{t.query}</span>
          <textarea rows={3} value={query} onChange={(event) => setQuery(event.target.value)} className={CONTROL} />
        </label>
        {fields.map((field, place) => (
          <div key={field.key}>
            <label htmlFor={`${id}-${place}`} className="font-medium">
              <bdi>{visibleName(field.name, 120)}</bdi>
              {field.isOptional ? <span className="font-normal text-ink-2"> ({texts.forms.optional})</span> : null}
            </label>
            <Control
              id={`${id}-${place}`}
              field={field}
              value={typed[field.key]}
              error={errors[field.key]}
              actions={{ upload: (file) => uploadFile(agentId, file) }}
              onChange={(value) => setTyped((known) => ({ ...known, [field.key]: value }))}
            />
            {errors[field.key] === undefined ? null : <p id={`${id}-${place}-error`} className="text-red">{errors[field.key]}</p>}
          </div>
        ))}
        <SendError error={error} />
        <Button type="submit" disabled={isBusy} className={SUBMIT}>
          {t.submit}
        </Button>
      </form>
    </Dialog>
  );
}

/** Return the fields that Begin asks for. */
function beginFields(document: Document): readonly FormField[] {
  const inputs = objectOf(nodesOf(document).get("begin")?.form.inputs);
  return Object.entries(inputs).filter(([, each]) => isObject(each)).map(([key, each]) => {
    const { name, type, optional, options, value } = objectOf(each);
    return { key, name: textOf(name) || key, type: textOf(type) || "line", isOptional: optional === true, options: listOf(options).filter((option) => typeof option === "string"), value };
  });
}

export function RunNodeDialog({ nodeId, onClose, onStarted }: Props & { nodeId: string }): ReactNode {
  const { agentId, session } = useEditor();
  const document = useDocument();
  const { store, contents } = useRunContext();
  const node = nodesOf(document).get(nodeId);
  const references = useMemo(() => referencesIn(document, nodeId), [document, nodeId]);
  const [values, setValues] = useState<Readonly<Record<string, string>>>({});
  const { isBusy, error, submit } = useStart(async (key) => {
    await session.savedEtag();
    const given = Object.entries(values).filter(([, text]) => text !== "").map(([name, text]): [string, Json] => [name, valueOf(text)]);
    return runNode(agentId, nodeId, Object.fromEntries(given), key);
  }, onStarted);

  useEffect(() => {
    const state = store.getState();
    const read = new Set(references.map((each) => each.split("@")[0] ?? ""));
    let isCurrent = true;
    void loadValues(lastSteps(state).filter(([id]) => read.has(id)), contents).then((known) => {
      const query = state.header?.query;
      const found = references.flatMap((reference): [string, string][] => {
        const value = reference === "sys.query" ? query : known.get(reference);
        return value === undefined || value === null ? [] : [[reference, typeof value === "string" ? value : JSON.stringify(value)]];
      });
      if (isCurrent) setValues((typed) => ({ ...Object.fromEntries(found), ...typed }));
    });
    return () => {
      isCurrent = false;
    };
  }, [store, contents, references]);

  return (
    <Dialog title={t.nodeTitle(visibleName(node?.name ?? nodeId, 60))} description={t.nodeText} onClose={onClose}>
      <form
        noValidate
        className="flex flex-col gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        {references.length ? null : <p className="text-ink-2">{t.noValues}</p>}
        {references.map((reference) => (
          <label key={reference}>
            <code className="font-mono font-medium break-all">{visibleName(reference, 120)}</code>
            <textarea rows={2} value={values[reference] ?? ""} onChange={(event) => setValues((known) => ({ ...known, [reference]: event.target.value }))} className={CONTROL} />
          </label>
        ))}
        <SendError error={error} />
        <Button type="submit" disabled={isBusy} className={SUBMIT}>
          {t.submit}
        </Button>
      </form>
    </Dialog>
  );
}

/** Return a list or an object that is written as JSON, and any other text as it is. */
function valueOf(text: string): Json {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}
