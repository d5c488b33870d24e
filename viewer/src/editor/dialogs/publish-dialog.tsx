/** Publishing the draft that is edited: it is saved first, and read again where it was changed elsewhere. */
import type { ReactNode } from "react";

import { texts } from "../../texts";
import { PublishDialog } from "../../versions/publish-dialog";
import { versionName } from "../../versions/version-name";
import { useDraft, useEditor } from "../editor-context";

export function PublishDraftDialog({ onClose }: { onClose: () => void }): ReactNode {
  const { agentId, session, notify } = useEditor();
  const published = useDraft((state) => state.published);
  const prepare = async (): Promise<void> => {
    await session.savedEtag();
    await session.reload();
    if (session.getState().conflict) throw new Error(texts.editor.inConflict);
  };
  return (
    <PublishDialog
      agentId={agentId}
      publishedId={published?.versionId ?? null}
      prepare={prepare}
      onDone={(version) => {
        session.notePublished(version.id, version.digest);
        notify(texts.versions.publishedNow(versionName(version)));
        onClose();
      }}
      onClose={onClose}
    />
  );
}
