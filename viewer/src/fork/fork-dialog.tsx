/** The dialog of a fork: where it starts, what it changes, what then happens. Load it lazily. */
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState, type ReactNode } from "react";

import { forkRun } from "../api/copies";
import type { Run } from "../api/replies";
import { SendError } from "../run/open-form";
import { useRunContext, useRunState } from "../run/use-run";
import { BudgetFields } from "../rerun/budget-fields";
import { NO_BUDGET } from "../rerun/budget";
import { beginFields } from "../rerun/begin-form";
import { runDocumentQuery, runQuery, versionsQuery } from "../rerun/copy-queries";
import { AsThenField, PRIMARY } from "../rerun/rerun-dialog";
import { useStart } from "../rerun/use-start";
import { NO_VERSIONS, useVersionDocument, VersionField } from "../rerun/version-field";
import { texts } from "../texts";
import { Dialog } from "../ui/dialog";
import { Button, Empty } from "../ui/parts";
import { AddEdit } from "./add-edit";
import { variablesOf } from "./document";
import { EditCard } from "./edit-card";
import { editKey, forkBody, rebased, type Edit } from "./edits";
import { ForkGraph } from "./fork-graph";
import { PreviewPane } from "./fork-preview";
import { placeOfPoint, type ForkPoint } from "./places";
import { usePreview, type Preview } from "./use-preview";

const t = texts.fork;

export default function ForkDialog({ stepId, onClose }: { stepId: string; onClose: () => void }): ReactNode {
  const { store } = useRunContext();
  const runId = store.getState().header?.id ?? "";
  const { data: run, error } = useQuery(runQuery(runId));
  return (
    <Dialog title={t.title} description={t.description} size="large" onClose={onClose}>
      {run ? <ForkForm run={run} stepId={stepId} onClose={onClose} /> : error ? <SendError error={error.message} /> : <Empty>{texts.copies.loading}</Empty>}
    </Dialog>
  );
}

function ForkForm({ run, stepId, onClose }: { run: Run; stepId: string; onClose: () => void }): ReactNode {
  const state = useRunState();
  const [point, setPoint] = useState<ForkPoint>({ nodeId: state.steps.find(stepId)?.nodeId ?? "", stepId });
  const [version, setVersion] = useState("same");
  const [typedEdits, setEdits] = useState<readonly Edit[]>([]);
  const [isAsThen, setAsThen] = useState(false);
  const [budget, setBudget] = useState(NO_BUDGET);
  const [confirmed, setConfirmed] = useState<ReadonlySet<string>>(new Set());
  const { data: listed } = useQuery(versionsQuery(run.agent_id ?? ""));
  const versions = listed?.versions ?? NO_VERSIONS;
  const own = useQuery(runDocumentQuery(run.id));
  const document = useVersionDocument(run, version, versions);
  const fields = useMemo(() => beginFields(document), [document]);
  const began = own.data?.variables;
  const variables = useMemo(() => (began && document !== undefined ? variablesOf(began, document) : own.error ? null : undefined), [began, document, own.error]);
  const edits = useMemo(() => typedEdits.map((edit) => rebased(edit, document, variables)), [typedEdits, document, variables]);
  const place = useMemo(() => placeOfPoint(state, point), [state, point]);
  const result = useMemo(() => forkBody({ place, version, fields, edits, isAsThen, budget }), [place, version, fields, edits, isAsThen, budget]);
  const body = "body" in result ? result.body : null;
  const preview = usePreview(run.id, body);
  const { start, isBusy, error } = useStart();
  const refusal = whyNot(result, preview, confirmed);

  const change = (key: string, typed: string): void => setEdits(edits.map((each) => (editKey(each) === key ? { ...each, typed } : each)));
  const confirm = (nodeId: string, isConfirmed: boolean): void =>
    setConfirmed((known) => new Set(isConfirmed ? [...known, nodeId] : [...known].filter((each) => each !== nodeId)));
  const send = (): void => {
    if (body) void start({ ...body, confirm_unsafe: (preview.data?.confirm ?? []).filter((each) => confirmed.has(each)) }, (sent, key) => forkRun(run.id, sent, key));
  };
  return (
    <div className="grid gap-4 lg:grid-cols-[minmax(0,1.15fr)_minmax(0,1.1fr)_minmax(17rem,0.7fr)]">
      <ForkGraph point={point} onPoint={setPoint} firstStep={stepId} preview={preview.data} />
      <section aria-label={t.edits} className="flex min-w-0 flex-col gap-2">
        <h3 className="font-semibold">{t.edits}</h3>
        <VersionField run={run} versions={versions} isCut={listed?.hasMore ?? false} value={version} onChange={setVersion} />
        {edits.length ? null : <p className="text-ink-2">{t.noEdits}</p>}
        {edits.map((edit) => (
          <EditCard
            key={editKey(edit)}
            edit={edit}
            agentId={run.agent_id ?? ""}
            fields={fields}
            onChange={(typed) => change(editKey(edit), typed)}
            onRemove={() => setEdits((known) => known.filter((each) => editKey(each) !== editKey(edit)))}
          />
        ))}
        <AddEdit
          run={run}
          document={document}
          fields={fields}
          variables={variables}
          preview={preview.data}
          pointNode={point.nodeId}
          edits={edits}
          onAdd={(edit) => setEdits((known) => [...known, edit])}
        />
      </section>
      <section aria-label={t.preview} className="flex min-w-0 flex-col gap-3">
        <h3 className="font-semibold">{t.preview}</h3>
        <PreviewPane preview={preview} confirmed={confirmed} onConfirm={confirm} />
        <AsThenField isChecked={isAsThen} onChange={setAsThen} />
        <BudgetFields typed={budget} error={"wrong" in result ? result.budget : null} onChange={setBudget} />
        <SendError error={error} />
        <div className="flex flex-wrap items-center justify-end gap-2">
          <span id="fork-refusal" className="text-ink-2">
            {refusal}
          </span>
          <Button onClick={onClose} className="px-3! py-1!">
            {texts.copies.cancel}
          </Button>
          <Button disabled={refusal !== null || isBusy} aria-describedby="fork-refusal" onClick={send} className={PRIMARY}>
            {t.start}
          </Button>
        </div>
      </section>
    </div>
  );
}

/** Return why the fork cannot be started now; null if it can. */
function whyNot(result: ReturnType<typeof forkBody>, preview: Preview, confirmed: ReadonlySet<string>): string | null {
  if ("wrong" in result) return result.wrong.length ? t.why.invalid : t.why.budget;
  if (!preview.isCurrent) return t.why.computing;
  if (preview.error !== null || !preview.data) return t.why.failed;
  return preview.data.confirm.every((nodeId) => confirmed.has(nodeId)) ? null : t.why.confirm;
}
