/** The dialog of a rerun with changes. Load it lazily. */
import { useQuery } from "@tanstack/react-query";
import { useId, useState, type FormEvent, type ReactNode } from "react";

import { rerunRun } from "../api/copies";
import type { Run } from "../api/replies";
import { SendError } from "../run/open-form";
import { usageOf } from "../run-file/rows";
import { texts } from "../texts";
import { ConfirmDialog, Dialog } from "../ui/dialog";
import { Button, Empty } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { amountsText } from "./amounts";
import { beginFields, typedInputs } from "./begin-form";
import { NO_BUDGET } from "./budget";
import { BudgetFields } from "./budget-fields";
import { runQuery, versionsQuery } from "./copy-queries";
import { Choice, FilesField } from "./files-field";
import { fileNames, InputFields, JsonField, QueryField } from "./request-fields";
import { isJsonQuery, rerunBody, writtenValue, type FirstRequest, type RerunErrors, type TypedRerun } from "./rerun-body";
import { useStart } from "./use-start";
import { NO_VERSIONS, useVersionDocument, VersionField } from "./version-field";

const t = texts.rerun;
export const PRIMARY = "border-accent! bg-accent! px-3! py-1! font-medium text-surface! enabled:hover:opacity-90 disabled:opacity-60";

export default function RerunDialog({ runId, onClose }: { runId: string; onClose: () => void }): ReactNode {
  const { data: run, error } = useQuery(runQuery(runId));
  return (
    <Dialog title={t.title} description={t.description} onClose={onClose}>
      {run ? <RerunForm run={run} onClose={onClose} /> : error ? <SendError error={error.message} /> : <Empty>{texts.copies.loading}</Empty>}
    </Dialog>
  );
}

function RerunForm({ run, onClose }: { run: Run; onClose: () => void }): ReactNode {
  const agentId = run.agent_id ?? "";
  const original: FirstRequest = { query: run.first_request?.query ?? null, inputs: run.first_request?.inputs ?? null };
  const [typed, setTyped] = useState<TypedRerun>(() => ({
    query: writtenValue(original.query),
    form: null,
    inputs: writtenValue(original.inputs),
    files: "keep",
    version: "same",
    conversation: "new",
    isAsThen: false,
    budget: NO_BUDGET,
  }));
  const [errors, setErrors] = useState<RerunErrors>({});
  const [isConfirming, setConfirming] = useState(false);
  const { data: versions } = useQuery(versionsQuery(agentId));
  const own = useVersionDocument(run, "same", NO_VERSIONS);
  const fields = beginFields(useVersionDocument(run, typed.version, versions?.versions ?? NO_VERSIONS) ?? own);
  const { start, isBusy, error } = useStart();
  const change = (part: Partial<TypedRerun>): void => setTyped((known) => ({ ...known, ...part }));
  const id = useId();
  const hasInputs = original.inputs !== null;

  const send = (isConfirmed: boolean): void => {
    const result = rerunBody(typed, original, fields);
    setErrors("errors" in result ? result.errors : {});
    if (!("body" in result)) return;
    if (typed.conversation === "same" && !isConfirmed) setConfirming(true);
    else void start(result.body, (body, key) => rerunRun(run.id, body, key));
  };
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    send(false);
  };
  return (
    <form noValidate onSubmit={submit} className="flex flex-col gap-3">
      <QueryField value={typed.query} isJson={isJsonQuery(original.query)} error={errors.query} onChange={(query) => change({ query })} />
      {fields.length ? (
        <InputFields
          agentId={agentId}
          fields={fields}
          typed={typed.form ?? typedInputs(fields, original.inputs)}
          errors={errors.form ?? {}}
          onChange={(form) => change({ form })}
        />
      ) : (
        <details open={hasInputs || errors.inputs !== undefined}>
          <summary className="min-h-6 cursor-pointer font-medium">{texts.copies.inputs}</summary>
          <JsonField label={texts.copies.inputsJson} value={typed.inputs} error={errors.inputs} onChange={(inputs) => change({ inputs })} />
        </details>
      )}
      <FilesField agentId={agentId} names={originalFiles(run)} files={typed.files} onChange={(files) => change({ files })} />
      <VersionField run={run} versions={versions?.versions ?? NO_VERSIONS} isCut={versions?.hasMore ?? false} value={typed.version} onChange={(version) => change({ version })} />
      <fieldset>
        <legend className="font-medium">{t.conversation}</legend>
        <Choice name={id} label={t.newConversation} isChecked={typed.conversation === "new"} onChoose={() => change({ conversation: "new" })} />
        <Choice name={id} label={t.sameConversation} isChecked={typed.conversation === "same"} onChoose={() => change({ conversation: "same" })} />
      </fieldset>
      <AsThenField isChecked={typed.isAsThen} onChange={(isAsThen) => change({ isAsThen })} />
      <BudgetFields typed={typed.budget} error={errors.budget ?? null} onChange={(budget) => change({ budget })} />
      <Estimate run={run} />
      <SendError error={error} />
      <div className="flex justify-end gap-2">
        <Button onClick={onClose} className="px-3! py-1!">
          {texts.copies.cancel}
        </Button>
        <Button type="submit" disabled={isBusy} className={PRIMARY}>
          {t.start}
        </Button>
      </div>
      {isConfirming ? (
        <ConfirmDialog
          title={t.confirmSame.title}
          text={t.confirmSame.text(visibleName(run.conversation_name ?? "", 80))}
          confirm={t.confirmSame.confirm}
          refuse={t.confirmSame.refuse}
          isBusy={isBusy}
          error={error}
          onConfirm={() => send(true)}
          onClose={() => setConfirming(false)}
        />
      ) : null}
    </form>
  );
}

/** Return the names of the original's files; the row of a run whose form was answered has those of the answer. */
function originalFiles(run: Run): string[] {
  const isFirst = JSON.stringify(run.request.query) === JSON.stringify(run.first_request?.query);
  return isFirst ? fileNames(run.request.files) : [];
}

export function AsThenField({ isChecked, onChange }: { isChecked: boolean; onChange: (isChecked: boolean) => void }): ReactNode {
  const id = useId();
  return (
    <div>
      <label className="flex min-h-6 items-center gap-1.5 font-medium">
        <input type="checkbox" className="size-4 shrink-0" aria-describedby={id} checked={isChecked} onChange={(event) => onChange(event.target.checked)} />
        {texts.copies.asThen}
      </label>
      <p id={id} className="text-ink-2">
        {texts.copies.asThenHint}
      </p>
    </div>
  );
}

function Estimate({ run }: { run: Run }): ReactNode {
  const usage = usageOf(run.usage);
  const amounts = amountsText({
    tokens: usage.promptTokens + usage.completionTokens,
    calls: usage.calls,
    cost: run.usage.cost,
    unpricedCalls: usage.unpricedCalls,
    ms: run.elapsed_ms,
  });
  return (
    <p className="rounded bg-panel px-2 py-1">
      <span className="font-medium">{texts.copies.estimate}:</span> {t.estimate(amounts || "–")}
    </p>
  );
}
