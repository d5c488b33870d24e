/** The versions of the agent; one of them can become the draft, after a look at what that changes. */
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useMemo, useRef, useState, type ReactNode } from "react";

import { PRIMARY } from "../../agents/looks";
import { listVersions, readVersion } from "../../api/agents";
import type { VersionRow } from "../../api/replies";
import { newIdempotencyKey } from "../../api/request";
import { SendError } from "../../run/open-form";
import { texts } from "../../texts";
import { Dialog } from "../../ui/dialog";
import { moment } from "../../ui/format";
import { Button, Empty } from "../../ui/parts";
import { visibleName } from "../../ui/visible-text";
import { memberText } from "../../versions/json-text";
import { VersionDifference } from "../../versions/version-difference";
import { versionName } from "../../versions/version-name";
import { comparable } from "../document/document";
import { objectOf, readJson, writeJson } from "../document/json";
import { useDocument, useDraft, useEditor } from "../editor-context";

const t = texts.editor.versions;

export function VersionsDialog({ onClose }: { onClose: () => void }): ReactNode {
  const [chosen, setChosen] = useState<VersionRow | null>(null);
  return (
    <Dialog title={chosen ? t.restoreTitle(versionName(chosen)) : t.title} description={t.text} size={chosen ? "large" : "medium"} onClose={onClose}>
      {chosen ? <Restore version={chosen} onBack={() => setChosen(null)} onClose={onClose} /> : <List onChoose={setChosen} />}
    </Dialog>
  );
}

function List({ onChoose }: { onChoose: (version: VersionRow) => void }): ReactNode {
  const { agentId, isReadOnly } = useEditor();
  const list = useInfiniteQuery({
    queryKey: ["versions of the editor", agentId],
    queryFn: ({ pageParam }) => listVersions(agentId, pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    staleTime: 0,
  });
  const versions = list.data?.pages.flatMap((page) => page.versions) ?? [];
  return (
    <>
      {list.error ? <SendError error={list.error.message} /> : null}
      {list.isPending ? <Empty>{t.loading}</Empty> : versions.length ? null : <Empty>{t.none}</Empty>}
      <ul aria-label={t.title} className="max-h-[55dvh] overflow-auto">
        {versions.map((version) => (
          <li key={version.id} data-testid="version" data-version={version.id} className="flex items-center gap-2 border-b border-line py-1.5">
            <span className="min-w-0 flex-1">
              <span className="block truncate font-medium">
                {version.number} · <bdi>{visibleName(version.title, 120)}</bdi>
              </span>
              <span className="text-xs text-ink-2">
                <time dateTime={version.created_at}>{moment(Date.parse(version.created_at))}</time>
                {version.published ? ` · ${t.published}` : ""}
                {version.same_as_draft ? ` · ${t.same}` : ""}
              </span>
            </span>
            <Button disabled={isReadOnly} title={isReadOnly ? texts.editor.readOnly : undefined} onClick={() => onChoose(version)}>
              {t.choose}
            </Button>
          </li>
        ))}
      </ul>
      {list.hasNextPage ? (
        <Button className="mt-2 self-start" disabled={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
          {t.more}
        </Button>
      ) : null}
    </>
  );
}

/** What a version changes in the draft, and the button that makes it the draft. */
function Restore({ version, onBack, onClose }: { version: VersionRow; onBack: () => void; onClose: () => void }): ReactNode {
  const { agentId, session, notify } = useEditor();
  const [error, setError] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const key = useRef(newIdempotencyKey());
  const draft = useDocument();
  const draftDigest = useDraft((state) => (state.save === "saved" ? state.digest : null));
  const read = useQuery({ queryKey: ["version", agentId, version.id], queryFn: ({ signal }) => readVersion(agentId, version.id, signal), staleTime: Number.POSITIVE_INFINITY });
  const before = useMemo(() => comparable(draft), [draft]);
  const after = useMemo(() => (read.data ? comparable(objectOf(readJson(memberText(read.data.text, "document") ?? "{}"))) : null), [read.data]);
  const restore = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      await session.restore(version.id, key.current);
      notify(t.restored);
      onClose();
    } catch (failure) {
      key.current = newIdempotencyKey();
      setError(failure instanceof Error ? failure.message : String(failure));
    } finally {
      setBusy(false);
    }
  };
  return (
    <div className="flex min-w-0 flex-col gap-3">
      {read.error ? <SendError error={read.error.message} /> : null}
      {read.isPending ? <Empty>{t.loadingOne}</Empty> : null}
      {after ? (
        <VersionDifference
          before={before}
          after={after}
          labels={[texts.versions.draft, versionName(version)]}
          jsonTexts={[writeJson(before), writeJson(after)]}
          {...(draftDigest === null ? {} : { isEqualStored: draftDigest === version.digest })}
        />
      ) : null}
      <SendError error={error} />
      <div className="flex flex-wrap justify-end gap-2">
        <Button className="px-3! py-1!" onClick={onBack}>
          {t.back}
        </Button>
        <Button className={PRIMARY} disabled={isBusy || after === null} onClick={() => void restore()}>
          {t.restore}
        </Button>
      </div>
    </div>
  );
}
