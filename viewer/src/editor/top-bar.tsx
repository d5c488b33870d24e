/** The bar of the editor: title, save state, undo and redo, laying out, running, publishing, and further actions. */
import type { ReactNode } from "react";

import { exportUrl } from "../api/drafts";
import { texts } from "../texts";
import { Menu } from "../ui/menu";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { useAgent } from "./panel/agent-pane";
import { countErrors, useDraft, useEditor, useSelection } from "./editor-context";
import { tidyDrawing } from "./selection-actions";

const t = texts.editor;
const TONES = { saved: "green", saving: "neutral", unsaved: "neutral", conflict: "amber", offline: "amber" } as const;

export function EditorBar({ onPalette, onPanel }: { onPalette: (() => void) | null; onPanel: (() => void) | null }): ReactNode {
  const editor = useEditor();
  const { agentId, isReadOnly, openDialog } = editor;
  const { data: agent } = useAgent(agentId);
  return (
    <header className="flex shrink-0 flex-wrap items-center gap-x-2 gap-y-1 border-b border-line px-3 py-1.5">
      <h1 className="min-w-0 flex-1 basis-32 truncate font-semibold">
        <bdi>{visibleName(agent?.title ?? "", 120)}</bdi>
      </h1>
      {isReadOnly ? <span className="text-ink-2">{t.readOnly}</span> : null}
      <SaveStateWord />
      {onPalette ? (
        <Button disabled={isReadOnly} onClick={onPalette}>
          {t.palette.open}
        </Button>
      ) : null}
      {onPanel ? <Button onClick={onPanel}>{t.drawing.form}</Button> : null}
      <UndoButtons />
      <TidyButton />
      <RunButton />
      <PublishButton />
      <Menu
        items={[
          { label: t.menu.import, onSelect: () => openDialog("import"), isDisabled: isReadOnly, ...(isReadOnly ? { hint: t.readOnly } : {}) },
          { label: t.menu.export, onSelect: () => void exportDraft(editor), isDisabled: isReadOnly, ...(isReadOnly ? { hint: t.menu.exportRefused } : {}) },
          null,
          { label: t.menu.versions, onSelect: () => openDialog("versions") },
          { label: t.menu.json, onSelect: () => openDialog("json") },
        ]}
      >
        <Button aria-label={t.more} title={t.more}>
          ⋯
        </Button>
      </Menu>
    </header>
  );
}

/** Save what has changed, and let the browser save the file. */
async function exportDraft({ agentId, session, notify }: ReturnType<typeof useEditor>): Promise<void> {
  try {
    await session.savedEtag();
    const link = window.document.createElement("a");
    link.href = exportUrl(agentId);
    link.download = "";
    link.click();
  } catch (error) {
    notify(error instanceof Error ? error.message : String(error), true);
  }
}

function SaveStateWord(): ReactNode {
  const { session, isReadOnly } = useEditor();
  const save = useDraft((state) => state.save);
  const saveError = useDraft((state) => state.saveError);
  if (isReadOnly) return null;
  return (
    <span className="flex items-center gap-1">
      <span data-testid="save-state" data-save={save} data-tone={TONES[save]} title={saveError ?? t.saveHint} className="rounded bg-tone-soft px-1.5 py-px font-medium text-tone">
        {t.save[save]}
      </span>
      {saveError !== null && save !== "saved" ? (
        <>
          <span role="alert" className="max-w-64 truncate text-red" title={saveError}>
            {visibleName(saveError, 200)}
          </span>
          <Button onClick={() => void session.save().catch(() => undefined)}>{t.saveNow}</Button>
        </>
      ) : null}
    </span>
  );
}

function UndoButtons(): ReactNode {
  const { session, notify, isReadOnly } = useEditor();
  const undo = useDraft((state) => state.undo);
  const redo = useDraft((state) => state.redo);
  if (isReadOnly) return null;
  return (
    <>
      <Button
        disabled={undo === null}
        aria-label={t.undo}
        title={undo === null ? t.undo : t.undoOf(undo)}
        onClick={() => {
          const name = session.undo();
          if (name !== null) notify(t.undone(name));
        }}
      >
        ↶
      </Button>
      <Button
        disabled={redo === null}
        aria-label={t.redo}
        title={redo === null ? t.redo : t.redoOf(redo)}
        onClick={() => {
          const name = session.redo();
          if (name !== null) notify(t.redone(name));
        }}
      >
        ↷
      </Button>
    </>
  );
}

function TidyButton(): ReactNode {
  const editor = useEditor();
  const { nodes } = useSelection();
  return editor.isReadOnly ? null : <Button onClick={() => void tidyDrawing(editor, nodes)}>{t.tidy}</Button>;
}

/** Return why the draft cannot be started or published; null if it can. */
function useProblem(): string | null {
  const { isReadOnly } = useEditor();
  const errors = useDraft((state) => countErrors(state.findings));
  const save = useDraft((state) => state.save);
  if (isReadOnly) return t.readOnly;
  if (save === "conflict") return t.inConflict;
  return errors ? t.hasErrors(errors) : null;
}

function RunButton(): ReactNode {
  const { openDialog } = useEditor();
  const problem = useProblem();
  return (
    <Button disabled={problem !== null} title={problem ?? undefined} onClick={() => openDialog("run")} className="font-medium">
      ▶ {t.run}
    </Button>
  );
}

function PublishButton(): ReactNode {
  const { openDialog } = useEditor();
  const problem = useProblem();
  return (
    <Button disabled={problem !== null} title={problem ?? undefined} onClick={() => openDialog("publish")}>
      {t.publish}
    </Button>
  );
}
