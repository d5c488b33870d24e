/** The right column with a run: its state, why it failed and where, its text and forms; while editing goes on. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import type { LiveRun, LiveStatus } from "../../live/live-run";
import { LiveActions } from "../../run/live-actions";
import TalkPane from "../../run/talk-pane";
import { useNodeNames, useRun, useRunState } from "../../run/use-run";
import { explainRun } from "../../store/explain";
import { runLook } from "../../store/run-status";
import { texts } from "../../texts";
import { duration } from "../../ui/format";
import { Button, Empty, StateBadge } from "../../ui/parts";
import { visibleName } from "../../ui/visible-text";
import { useEditor } from "../editor-context";

const t = texts.editor.running;

export function RunPane({ live, status, onClose }: { live: LiveRun | null; status: LiveStatus | null; onClose: () => void }): ReactNode {
  const { openDialog, isReadOnly } = useEditor();
  const header = useRun((state) => state.header);
  if (!live || !status) {
    return (
      <div className="p-3">
        <p className="mb-2 text-ink-2">{t.none}</p>
        <Button disabled={isReadOnly} onClick={() => openDialog("run")}>
          {t.title}
        </Button>
      </div>
    );
  }
  if (!header) return <Empty>{status.error ? visibleName(status.error.message, 300) : texts.inspector.loading}</Empty>;
  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <RunHead onClose={onClose}>
        <LiveActions runId={live.runId} mode={status.mode} onDone={() => void live.refresh()} />
      </RunHead>
      <TalkPane />
    </div>
  );
}

function RunHead({ children, onClose }: { children: ReactNode; onClose: () => void }): ReactNode {
  const run = useRunState();
  const names = useNodeNames();
  const { focusField, openDialog, isReadOnly } = useEditor();
  const { header } = run;
  const explanation = explainRun(run);
  if (!header || !explanation) return null;
  const node = explanation.stepId === null ? null : (run.steps.find(explanation.stepId)?.nodeId ?? null);
  const began = header.startedAt ?? header.createdAt;
  const took = began === null ? null : duration(Math.max(0, (header.finishedAt ?? run.now) - began));
  return (
    <header data-testid="run-header" data-run-id={header.id} data-status={header.status} className="shrink-0 border-b border-line p-3">
      <div className="flex flex-wrap items-center gap-2">
        <StateBadge look={runLook(header.status)} {...(took === null ? {} : { extra: took })} />
        <span className="flex-1" />
        <Button aria-label={t.close} title={t.close} onClick={onClose}>
          ✕
        </Button>
      </div>
      <div className="mt-1 flex flex-wrap items-center gap-2">
        {children}
        <Link to="/runs/$runId" params={{ runId: header.id }} className="min-h-6 leading-6 text-accent underline">
          {t.open}
        </Link>
        <Button disabled={isReadOnly} onClick={() => openDialog("run")}>
          {t.new}
        </Button>
      </div>
      <p data-testid="explain" data-waits-for={explanation.waitsFor} data-tone={explanation.tone} className="mt-1">
        <span className="text-tone">{visibleName(explanation.sentence, 500)}</span>{" "}
        {node === null ? null : (
          <button type="button" className="min-h-6 text-accent underline" onClick={() => focusField({ nodeId: node, field: null })}>
            {t.failedAt(visibleName(names.get(node) ?? node, 60))}
          </button>
        )}
      </p>
    </header>
  );
}
