/** Starting a run of an agent with a query and the inputs of its Begin. */
import { useNavigate } from "@tanstack/react-router";
import { useId, useState, type FormEvent, type ReactNode } from "react";

import { DRAFT, startRun, webhookUrl } from "../api/agents";
import type { AgentHead } from "../api/replies";
import { uploadFile } from "../api/runs";
import { answersOf, type FieldErrors } from "../run/form-values";
import { Control, SendError } from "../run/open-form";
import type { RunActions } from "../run/use-run";
import { texts } from "../texts";
import { Dialog } from "../ui/dialog";
import { Button, CopyButton } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { beginFields, isWebhook, startInputs, webhookInputs } from "./begin-inputs";
import { FIELD, PRIMARY } from "./looks";
import { useClick } from "./use-click";

const t = texts.start;

interface Props {
  agent: AgentHead;
  /** `draft`, or the id of a version. */
  version: string;
  versionName: string;
  onClose: () => void;
}

export function StartDialog({ agent, version, versionName, onClose }: Props): ReactNode {
  const navigate = useNavigate();
  const id = useId();
  const fields = beginFields(agent.begin);
  const isHook = isWebhook(agent.begin);
  const [query, setQuery] = useState("");
  const [body, setBody] = useState("");
  const [typed, setTyped] = useState<Readonly<Record<string, unknown>>>(() => Object.fromEntries(fields.map((field) => [field.key, field.value])));
  const [errors, setErrors] = useState<FieldErrors>({});
  const [hasBadBody, setBadBody] = useState(false);
  const click = useClick();
  const actions: RunActions = { answer: () => Promise.resolve(), upload: (file) => uploadFile(agent.id, file), showTalk: () => undefined };

  const submit = (event: FormEvent): void => {
    event.preventDefault();
    const answered = answersOf({ nodeId: "begin", tips: null, fields }, typed);
    const hook = isHook ? webhookInputs(body) : {};
    setErrors("errors" in answered ? answered.errors : {});
    setBadBody(hook === null);
    if ("errors" in answered) {
      document.getElementById(`${id}-${fields.findIndex((field) => field.key in answered.errors)}`)?.focus();
      return;
    }
    if (hook === null) return;
    const inputs = hook.inputs ?? startInputs(fields, answered.answers.inputs ?? {});
    void click.send(async (key) => {
      const started = await startRun(agent.id, { query, version, ...(inputs ? { inputs } : {}) }, key);
      await navigate({ to: "/runs/$runId", params: { runId: started.run_id } });
    });
  };

  return (
    <Dialog title={t.title(visibleName(agent.title, 80))} description={t.version(version === DRAFT ? `the ${versionName}` : versionName)} onClose={onClose}>
      <form noValidate onSubmit={submit} className="flex flex-col gap-3">
        {isHook ? (
          <>
            <p className="flex flex-wrap items-center gap-1">
              {t.webhook} <code className="font-mono text-xs [overflow-wrap:anywhere]">{webhookUrl(agent.id)}</code>
              <CopyButton text={() => webhookUrl(agent.id)} />
            </p>
            <label className="flex flex-col gap-1">
              <span className="font-medium">{t.body}</span>
              <textarea rows={5} className={`${FIELD} font-mono text-xs`} value={body} aria-invalid={hasBadBody} onChange={(event) => setBody(event.target.value)} />
            </label>
            {hasBadBody ? (
              <p role="alert" className="text-red">
                {t.badBody}
              </p>
            ) : null}
          </>
        ) : (
          <label className="flex flex-col gap-1">
            <span className="font-medium">{t.query}</span>
            <textarea rows={3} className={FIELD} value={query} onChange={(event) => setQuery(event.target.value)} />
          </label>
        )}
        {fields.map((field, place) => (
          <div key={field.key}>
            <label htmlFor={`${id}-${place}`} className="block font-medium">
              <bdi>{visibleName(field.name, 120)}</bdi>
              {field.isOptional ? <span className="font-normal text-ink-2"> ({texts.forms.optional})</span> : <span aria-hidden="true"> *</span>}
            </label>
            <Control
              id={`${id}-${place}`}
              field={field}
              value={typed[field.key]}
              error={errors[field.key]}
              actions={actions}
              onChange={(value) => setTyped((known) => ({ ...known, [field.key]: value }))}
            />
            {errors[field.key] === undefined ? null : (
              <p id={`${id}-${place}-error`} className="text-red">
                {errors[field.key]}
              </p>
            )}
          </div>
        ))}
        <SendError error={click.error?.message ?? null} />
        <div className="flex justify-end gap-2">
          <Button className="px-3! py-1!" onClick={onClose}>
            {t.cancel}
          </Button>
          <Button type="submit" disabled={click.isBusy} className={PRIMARY}>
            {t.start}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
