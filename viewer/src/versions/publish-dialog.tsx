/** Publishing the draft: what differs from the published version, the findings, a title and a description. */
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";

import { errorsOf, FindingList } from "../agents/finding-list";
import { FIELD, PRIMARY } from "../agents/looks";
import { useClick } from "../agents/use-click";
import { DRAFT, publishDraft, readDraft, readVersion } from "../api/agents";
import type { FindingRow, VersionRow } from "../api/replies";
import { ApiError } from "../api/request";
import { texts } from "../texts";
import { Dialog } from "../ui/dialog";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { memberText } from "./json-text";
import { VersionDifference } from "./version-difference";
import { versionName } from "./version-name";

const t = texts.versions;

interface Props {
  agentId: string;
  /** The version that is published now. */
  publishedId: string | null;
  /** What is done before the draft is read, for example saving it. */
  prepare?: () => Promise<void>;
  onDone: (version: VersionRow) => void;
  onClose: () => void;
}

export function PublishDialog({ agentId, publishedId, prepare, onDone, onClose }: Props): ReactNode {
  const [title, setTitle] = useState("");
  const [description, setDescription] = useState("");
  const click = useClick();
  const both = useQuery({
    queryKey: ["publish", agentId, publishedId],
    queryFn: async ({ signal }) => {
      await prepare?.();
      // the ETag is read first: a change after it is a 412
      const draft = await readDraft(agentId, signal);
      const [after, before] = await Promise.all([readVersion(agentId, DRAFT, signal), publishedId === null ? null : readVersion(agentId, publishedId, signal)]);
      return { draft, after, before };
    },
    staleTime: 0,
    gcTime: 0,
  });
  const findings = findingsOf(click.error) ?? both.data?.draft.findings ?? [];
  const errors = errorsOf(findings);
  const isChanged = click.error instanceof ApiError && click.error.status === 412;
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    const etag = both.data?.draft.etag;
    if (etag === undefined) return;
    void click.send(async (key) => {
      onDone(await publishDraft(agentId, { ...(title.trim() && { title: title.trim() }), ...(description.trim() && { description: description.trim() }) }, etag, key));
    });
  };
  return (
    <Dialog title={t.publishTitle} description={t.publishText} size="large" onClose={onClose}>
      <form noValidate onSubmit={submit} className="flex min-w-0 flex-col gap-3">
        {both.error ? <p role="alert">{both.error.message}</p> : null}
        {both.isPending ? <p className="text-ink-2">{t.loading}</p> : null}
        {both.data && !both.data.before ? <p>{t.firstPublication}</p> : null}
        {both.data?.before?.digest !== undefined && both.data.before.digest === both.data.after.digest ? <p>{t.nothingToPublish}</p> : null}
        {both.data?.before ? (
          <VersionDifference
            before={both.data.before.document}
            after={both.data.after.document}
            labels={[versionName(both.data.before), t.draft]}
            jsonTexts={[memberText(both.data.before.text, "document") ?? "{}", memberText(both.data.after.text, "document") ?? "{}"]}
            isEqualStored={both.data.before.digest === both.data.after.digest}
          />
        ) : null}
        {errors.length ? (
          <div role="alert">
            <p className="font-medium text-red">{t.hasErrors}</p>
            <FindingList findings={errors} />
          </div>
        ) : findings.length ? (
          <FindingList findings={findings} />
        ) : null}
        <label className="flex flex-col gap-1">
          <span className="font-medium">{t.versionTitle}</span>
          <input className={FIELD} value={title} maxLength={255} autoComplete="off" onChange={(event) => setTitle(event.target.value)} />
        </label>
        <label className="flex flex-col gap-1">
          <span className="font-medium">{t.versionDescription}</span>
          <textarea rows={2} className={FIELD} value={description} onChange={(event) => setDescription(event.target.value)} />
        </label>
        {click.error && !errors.length ? (
          <p role="alert" className="text-red">
            {isChanged ? t.draftChanged : visibleName(click.error.message, 300)}
          </p>
        ) : null}
        <div className="flex flex-wrap justify-end gap-2">
          {isChanged ? (
            <Button
              className="px-3! py-1!"
              onClick={() => {
                click.clear();
                void both.refetch();
              }}
            >
              {texts.goOn}
            </Button>
          ) : null}
          <Button className="px-3! py-1!" onClick={onClose}>
            {t.cancel}
          </Button>
          <Button type="submit" disabled={click.isBusy || !both.data || errors.length > 0 || isChanged} className={PRIMARY}>
            {t.confirmPublish}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function findingsOf(error: Error | null): FindingRow[] | null {
  const details = error instanceof ApiError && error.code === "has_errors" && typeof error.details === "object" && error.details !== null ? (error.details as Record<string, unknown>) : {};
  return Array.isArray(details.findings) ? (details.findings as FindingRow[]) : null;
}
