/** Publishing the draft: what differs from the published version, its title, and the findings. */
import { useEffect, useRef, useState, type ReactNode } from "react";

import { publishDraft, readVersion } from "../../api/drafts";
import { ApiError, newIdempotencyKey } from "../../api/request";
import { SendError } from "../../run/open-form";
import { texts } from "../../texts";
import { Dialog } from "../../ui/dialog";
import { Button } from "../../ui/parts";
import { visibleName } from "../../ui/visible-text";
import { withNodes, type Document } from "../document/document";
import { objectOf, readJson } from "../document/json";
import { countErrors, useDocument, useDraft, useEditor } from "../editor-context";
import { ChangeList } from "./change-list";

const t = texts.editor.publishing;
const CONTROL = "min-h-8 w-full rounded border border-line-strong bg-surface px-2";

export function PublishDialog({ onClose }: { onClose: () => void }): ReactNode {
  const { agentId, session, notify } = useEditor();
  const published = useDraft((state) => state.published);
  const findings = useDraft((state) => state.findings);
  const [title, setTitle] = useState("");
  const [description, setDescription] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const key = useRef(newIdempotencyKey());
  const errors = countErrors(findings);

  const publish = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      const etag = await session.savedEtag();
      const version = await publishDraft(agentId, { ...(title ? { title } : {}), ...(description ? { description } : {}) }, etag, key.current);
      session.notePublished(version.id, version.digest);
      notify(t.done(visibleName(version.title, 80)));
      onClose();
    } catch (failure) {
      key.current = newIdempotencyKey();
      setBusy(false);
      if (failure instanceof ApiError && failure.status === 412) {
        setError(t.changed);
        await session.reload().catch(() => undefined);
      } else setError(failure instanceof Error ? failure.message : String(failure));
    }
  };
  return (
    <Dialog title={t.title} description={t.text} onClose={onClose}>
      <form
        noValidate
        className="flex flex-col gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          void publish();
        }}
      >
        <section aria-label={t.difference}>
          <h3 className="font-medium">{t.difference}</h3>
          {published === null ? <p className="text-ink-2">{t.first}</p> : <Difference versionId={published.versionId} />}
        </section>
        <label>
          <span className="font-medium">{t.versionTitle}</span> <span className="text-ink-2">({texts.forms.optional})</span>
          <input value={title} maxLength={255} onChange={(event) => setTitle(event.target.value)} className={CONTROL} />
        </label>
        <label>
          <span className="font-medium">{t.description}</span> <span className="text-ink-2">({texts.forms.optional})</span>
          <textarea rows={2} value={description} maxLength={5000} onChange={(event) => setDescription(event.target.value)} className={`${CONTROL} py-1`} />
        </label>
        {errors ? <p className="text-red">{texts.editor.hasErrors(errors)}</p> : findings.length ? <p className="text-ink-2">{t.warnings(findings.length)}</p> : null}
        <SendError error={error} />
        <Button type="submit" disabled={isBusy || errors > 0} className="self-end border-accent! bg-accent! px-3! py-1! font-medium text-surface! enabled:hover:opacity-90 disabled:opacity-60">
          {t.submit}
        </Button>
      </form>
    </Dialog>
  );
}

function Difference({ versionId }: { versionId: string }): ReactNode {
  const { agentId } = useEditor();
  const document = useDocument();
  const [version, setVersion] = useState<Document | null>(null);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    const aborted = new AbortController();
    readVersion(agentId, versionId, aborted.signal).then(
      (text) => setVersion(withNodes(objectOf(objectOf(readJson(text)).document))),
      (failure: unknown) => (aborted.signal.aborted ? undefined : setError(failure instanceof Error ? failure.message : String(failure))),
    );
    return () => aborted.abort();
  }, [agentId, versionId]);
  if (error !== null) return <SendError error={error} />;
  return version ? <ChangeList before={version} after={document} /> : <p className="text-ink-2">{t.loading}</p>;
}
