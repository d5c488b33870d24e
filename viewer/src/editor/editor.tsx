/** The editor of a draft: palette, drawing, right column, findings. */
import { useCallback, useEffect, useMemo, useRef, useState, type DragEvent, type ReactNode } from "react";

import type { Catalogue } from "../catalogue/catalogue";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { ErrorBoundary } from "../ui/error-boundary";
import { useNarrow } from "../ui/use-width";
import { LeftBar, Notice } from "./bars";
import { ConflictBar } from "./conflict-bar";
import { ConnectDialog } from "./dialogs/connect-dialog";
import { ImportDialog, readFile } from "./dialogs/import-dialog";
import { PublishDraftDialog } from "./dialogs/publish-dialog";
import { RunDialog, RunNodeDialog } from "./dialogs/run-dialogs";
import { JsonDialog } from "./dialogs/json-dialog";
import { VersionsDialog } from "./dialogs/versions-dialog";
import { Refusal } from "./document/commands";
import { nodesOf } from "./document/document";
import { EditDrawing } from "./drawing/edit-drawing";
import { countErrors, EditorContext, SelectionContext, type Camera, type Editor as EditorParts, type EditorDialog, type FocusedField, type Selection } from "./editor-context";
import type { EditorSearch } from "./editor-search";
import { FindingsList } from "./findings-list";
import { Palette } from "./palette";
import { Panel } from "./panel/panel";
import { RunScope } from "./run/run-scope";
import type { DraftSession } from "./session/draft-session";
import { EditorBar } from "./top-bar";
import { useEditorKeys } from "./use-editor-keys";

const t = texts.editor;
const NOTICE_MS = 8000;

interface Props {
  agentId: string;
  session: DraftSession;
  catalogue: Catalogue;
  isReadOnly: boolean;
  search: EditorSearch;
  onSearch: (change: Partial<Record<keyof EditorSearch, string | undefined>>, replace?: boolean) => void;
}

export function Editor({ agentId, session, catalogue, isReadOnly, search, onSearch }: Props): ReactNode {
  const [notice, notify] = useNotice();
  const [selection, select] = useSelected(session, search.node, onSearch);
  const [dialog, setDialog] = useState<EditorDialog | null>(null);
  const [focused, setFocused] = useState<FocusedField | null>(null);
  const [open, setOpen] = useState<"palette" | "panel" | null>(null);
  const camera = useRef<Camera>({ center: () => ({ x: 0, y: 0 }), fit: () => undefined });

  const editor = useMemo((): EditorParts => {
    return {
      agentId, session, catalogue, isReadOnly, select, camera,
      notify: (text, isProblem = false) => notify({ text, isProblem }),
      openDialog: setDialog,
      perform: (name, command, key) => {
        if (isReadOnly) {
          notify({ text: t.readOnly, isProblem: true });
          return false;
        }
        try {
          session.apply(name, command, key ?? null);
          return true;
        } catch (error) {
          if (!(error instanceof Refusal)) throw error;
          notify({ text: error.message, isProblem: true });
          return false;
        }
      },
      focusField: (place) => {
        select({ nodes: [place.nodeId], edges: [] });
        onSearch({ tab: undefined }, true);
        setFocused({ ...place });
        setOpen("panel");
      },
    };
  }, [agentId, session, catalogue, isReadOnly, select, notify, onSearch]);

  const importText = useCallback(
    (text: string): void => {
      session.importText(text).then(
        () => notify({ text: t.importing.done, isProblem: false }),
        (error: unknown) => notify({ text: error instanceof Error ? error.message : String(error), isProblem: true }),
      );
    },
    [session, notify],
  );
  const onRun = (): void => {
    const { findings, save } = session.getState();
    const errors = countErrors(findings);
    if (isReadOnly) notify({ text: t.readOnly, isProblem: true });
    else if (errors || save === "conflict") notify({ text: errors ? t.hasErrors(errors) : t.inConflict, isProblem: true });
    else setDialog("run");
  };
  useEditorKeys({ editor, selection, onRun, onImport: importText });
  useFocus(focused);

  return (
    <EditorContext value={editor}>
      <SelectionContext value={selection}>
        <RunScope runId={search.run}>
          {(run) => (
            <>
              <Frame notice={notice} onNotice={notify} open={open} onOpen={setOpen} onFile={importText}>
                {{
                  drawing: <EditDrawing view={search.z} onView={(z) => onSearch({ z }, true)} />,
                  panel: (onClose) => (
                    <Panel
                      tab={search.tab ?? "form"}
                      onTab={(tab) => onSearch({ tab: tab === "form" ? undefined : tab }, true)}
                      focusField={focused?.nodeId === selection.nodes[0] ? (focused?.field ?? null) : null}
                      run={{ ...run, onClose: () => onSearch({ run: undefined, tab: undefined }) }}
                      onClose={onClose}
                    />
                  ),
                }}
              </Frame>
              <Dialogs
                dialog={dialog}
                onClose={() => setDialog(null)}
                onStarted={(runId) => {
                  setDialog(null);
                  setOpen("panel");
                  onSearch({ run: runId, tab: "run" });
                }}
              />
            </>
          )}
        </RunScope>
      </SelectionContext>
    </EditorContext>
  );
}

// -- frame -------------------------------------------------------------------------------------------------------------
interface FrameProps {
  notice: { text: string; isProblem: boolean } | null;
  onNotice: (notice: { text: string; isProblem: boolean } | null) => void;
  open: "palette" | "panel" | null;
  onOpen: (open: "palette" | "panel" | null) => void;
  onFile: (text: string) => void;
  children: { drawing: ReactNode; panel: (onClose: (() => void) | null) => ReactNode };
}

function Frame({ notice, onNotice, open, onOpen, onFile, children }: FrameProps): ReactNode {
  const isNarrow = useNarrow(1000);
  const isVeryNarrow = useNarrow(720);
  const dropping = useFileDrop(onFile, (text) => onNotice({ text, isProblem: true }));
  const close = (): void => onOpen(null);
  const sheet = "absolute inset-y-0 z-30 flex w-full max-w-96 flex-col border-line bg-surface shadow-lg";
  return (
    <div className="relative flex min-h-0 flex-1 flex-col" {...dropping.handlers}>
      <EditorBar onPalette={isVeryNarrow ? () => onOpen("palette") : null} onPanel={isNarrow ? () => onOpen("panel") : null} />
      <LeftBar />
      <ConflictBar />
      <div className="relative flex min-h-0 flex-1">
        {isVeryNarrow ? (
          open === "palette" ? (
            <div className={`${sheet} left-0 border-r`}>
              <Palette onClose={close} />
            </div>
          ) : null
        ) : (
          <PaletteColumn />
        )}
        <div className="relative flex min-h-0 min-w-0 flex-1 flex-col">
          <Notice notice={notice} onClose={() => onNotice(null)} />
          <ErrorBoundary>{children.drawing}</ErrorBoundary>
          <FindingsList />
        </div>
        {isNarrow ? open === "panel" ? <div className={`${sheet} right-0 border-l`}>{children.panel(close)}</div> : null : <div className="flex w-[28%] max-w-[480px] min-w-80 shrink-0 flex-col border-l border-line">{children.panel(null)}</div>}
      </div>
      {dropping.isOver ? <div className="pointer-events-none absolute inset-2 z-40 flex items-center justify-center rounded-lg border-2 border-dashed border-accent bg-accent-soft/80 text-base font-medium">{t.drop}</div> : null}
    </div>
  );
}

function PaletteColumn(): ReactNode {
  return (
    <div className="flex w-52 shrink-0 flex-col border-r border-line bg-panel/50">
      <Palette />
    </div>
  );
}

/** A file that is dropped anywhere on the page replaces the draft. */
function useFileDrop(onFile: (text: string) => void, onProblem: (text: string) => void) {
  const [isOver, setOver] = useState(false);
  const hasFile = (event: DragEvent): boolean => event.dataTransfer.types.includes("Files");
  return {
    isOver,
    handlers: {
      onDragOver: (event: DragEvent) => {
        if (!hasFile(event)) return;
        event.preventDefault();
        setOver(true);
      },
      onDragLeave: (event: DragEvent) => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setOver(false);
      },
      onDrop: (event: DragEvent) => {
        const [file] = event.dataTransfer.files;
        setOver(false);
        if (!file) return;
        event.preventDefault();
        readFile(file).then(onFile, (error: unknown) => onProblem(error instanceof Error ? error.message : String(error)));
      },
    },
  };
}

function Dialogs({ dialog, onClose, onStarted }: { dialog: EditorDialog | null; onClose: () => void; onStarted: (runId: string) => void }): ReactNode {
  if (dialog === null) return null;
  if (typeof dialog === "object") {
    return "connect" in dialog ? <ConnectDialog nodeId={dialog.connect} onClose={onClose} /> : <RunNodeDialog nodeId={dialog.runNode} onClose={onClose} onStarted={onStarted} />;
  }
  switch (dialog) {
    case "publish":
      return <PublishDraftDialog onClose={onClose} />;
    case "versions":
      return <VersionsDialog onClose={onClose} />;
    case "import":
      return <ImportDialog onClose={onClose} />;
    case "json":
      return <JsonDialog onClose={onClose} />;
    case "run":
      return <RunDialog onClose={onClose} onStarted={onStarted} />;
  }
}

// -- state -------------------------------------------------------------------------------------------------------------
function useNotice(): [FrameProps["notice"], FrameProps["onNotice"]] {
  const announce = useAnnounce();
  const [notice, setNotice] = useState<FrameProps["notice"]>(null);
  useEffect(() => {
    if (!notice) return;
    const timer = setTimeout(() => setNotice(null), NOTICE_MS);
    return () => clearTimeout(timer);
  }, [notice]);
  const notify = useCallback(
    (next: FrameProps["notice"]) => {
      setNotice(next);
      if (next) announce(next.text);
    },
    [announce],
  );
  return [notice, notify];
}

/** The selection; one selected node stands in the address. */
function useSelected(session: DraftSession, node: string | undefined, onSearch: Props["onSearch"]): [Selection, EditorParts["select"]] {
  const [selection, setSelection] = useState<Selection>({ nodes: node === undefined ? [] : [node], edges: [] });
  const latest = useRef(selection);
  const select = useCallback(
    (change: Partial<Selection>): void => {
      const next = { ...latest.current, ...change };
      const isSame = next.nodes.join("\n") === latest.current.nodes.join("\n") && next.edges.join("\n") === latest.current.edges.join("\n");
      if (isSame) return;
      latest.current = next;
      setSelection(next);
      session.closeStep();
      onSearch({ node: next.nodes.length === 1 ? next.nodes[0] : undefined }, true);
    },
    [session, onSearch],
  );
  useEffect(() => {
    // Back and Forward, and undo of what was selected
    const only = latest.current.nodes.length === 1 ? latest.current.nodes[0] : undefined;
    if (node !== only && node !== undefined) {
      latest.current = { nodes: [node], edges: [] };
      setSelection(latest.current);
    }
  }, [node]);
  useEffect(
    () =>
      session.subscribe(() => {
        const known = nodesOf(session.getState().document ?? {});
        if (latest.current.nodes.some((id) => !known.has(id))) select({ nodes: latest.current.nodes.filter((id) => known.has(id)) });
      }),
    [session, select],
  );
  return [selection, select];
}

/** Focus a field of the form, or the form itself, once it is shown. */
function useFocus(focused: FocusedField | null): void {
  useEffect(() => {
    if (!focused) return;
    const frame = requestAnimationFrame(() => {
      const panel = document.querySelector<HTMLElement>("[data-testid=panel]");
      if (!panel || (focused.field !== null && panel.contains(document.activeElement) && document.activeElement !== panel)) return; // the form has focused its field
      const field = focused.field === null ? null : panel.querySelector<HTMLElement>(`[data-field="${CSS.escape(focused.field)}"]`);
      const target = field ?? panel.querySelector<HTMLElement>("[role=tabpanel] input, [role=tabpanel] textarea, [role=tabpanel] [contenteditable]") ?? panel;
      (target.matches("input, textarea, select, button, [contenteditable]") ? target : (target.querySelector<HTMLElement>("input, textarea, select, button, [contenteditable]") ?? panel)).focus();
    });
    return () => cancelAnimationFrame(frame);
  }, [focused]);
}
