/** The versions of the agent; one of them can become the draft. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { useRef, useState, type ReactNode } from "react";

import { listVersions } from "../../api/agents";
import { newIdempotencyKey } from "../../api/request";
import { SendError } from "../../run/open-form";
import { texts } from "../../texts";
import { Dialog } from "../../ui/dialog";
import { moment } from "../../ui/format";
import { Button, Empty } from "../../ui/parts";
import { visibleName } from "../../ui/visible-text";
import { useEditor } from "../editor-context";

const t = texts.editor.versions;

export function VersionsDialog({ onClose }: { onClose: () => void }): ReactNode {
  const { agentId, isReadOnly, session, notify } = useEditor();
  const [error, setError] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const keys = useRef(new Map<string, string>());
  const list = useInfiniteQuery({
    queryKey: ["versions of the editor", agentId],
    queryFn: ({ pageParam }) => listVersions(agentId, pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    staleTime: 0,
  });
  const restore = async (versionId: string): Promise<void> => {
    setBusy(true);
    setError(null);
    const key = keys.current.get(versionId) ?? newIdempotencyKey();
    keys.current.set(versionId, key);
    try {
      await session.restore(versionId, key);
      notify(t.restored);
      onClose();
    } catch (failure) {
      keys.current.delete(versionId);
      setError(failure instanceof Error ? failure.message : String(failure));
    } finally {
      setBusy(false);
    }
  };
  const versions = list.data?.pages.flatMap((page) => page.versions) ?? [];
  return (
    <Dialog title={t.title} description={t.text} onClose={onClose}>
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
            <Button disabled={isReadOnly || isBusy} title={isReadOnly ? texts.editor.readOnly : undefined} onClick={() => void restore(version.id)}>
              {t.restore}
            </Button>
          </li>
        ))}
      </ul>
      {list.hasNextPage ? (
        <Button className="mt-2 self-start" disabled={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
          {t.more}
        </Button>
      ) : null}
      <SendError error={error} />
    </Dialog>
  );
}
