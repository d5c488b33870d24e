/** The run that is shown on the drawing: followed live, or none. Its views read it as on the page of a run. */
import { useCallback, useEffect, useMemo, useState, useSyncExternalStore, type ReactNode } from "react";

import { readVersion } from "../../api/agents";
import { resumeRun, uploadFile } from "../../api/runs";
import { ApiContents } from "../../live/api-contents";
import { LiveRun, type LiveStatus } from "../../live/live-run";
import type { RunContents } from "../../run/contents";
import { RunProvider } from "../../run/run-provider";
import type { RunSearch } from "../../run/run-search";
import { useRun, type RunActions } from "../../run/use-run";
import { RunStore } from "../../store/run-store";
import { changedNodes } from "../document/changes";
import { withNodes, type Document } from "../document/document";
import { objectOf, readJson } from "../document/json";
import { useDocument, useEditor } from "../editor-context";
import { ChangedNodesContext, NO_NODES } from "./changed-nodes";

interface OpenRun {
  store: RunStore;
  contents: RunContents;
  live: LiveRun | null;
}

const NOT_LIVE: LiveStatus | null = null;
const nothing = (): (() => void) => () => undefined;

interface Props {
  runId: string | undefined;
  children: (run: { live: LiveRun | null; status: LiveStatus | null }) => ReactNode;
}

export function RunScope({ runId, children }: Props): ReactNode {
  const { agentId, focusField } = useEditor();
  const [run, setRun] = useState<OpenRun>(noRun);
  useEffect(() => {
    if (runId === undefined) {
      setRun(noRun());
      return;
    }
    const store = new RunStore();
    const live = new LiveRun(runId, store);
    setRun({ store, contents: new ApiContents(runId), live });
    live.start();
    return () => live.stop();
  }, [runId]);
  const { store, contents, live } = run;
  const status = useSyncExternalStore(live?.subscribe ?? nothing, () => live?.getStatus() ?? NOT_LIVE);
  const actions = useMemo((): RunActions | null => {
    if (!live) return null;
    return {
      answer: async (answers, key) => {
        try {
          await resumeRun(live.runId, answers, key);
        } finally {
          await live.refresh();
        }
      },
      upload: (file) => uploadFile(agentId, file),
      showTalk: () => undefined, // it is shown
    };
  }, [live, agentId]);
  /** A step is shown as the node that it is of. */
  const showNode = useCallback(
    (stepId: string | null): void => {
      const nodeId = stepId === null ? undefined : store.getState().steps.find(stepId)?.nodeId;
      if (typeof nodeId === "string") focusField({ nodeId, field: null });
    },
    [store, focusField],
  );
  return (
    <RunProvider store={store} contents={contents} actions={actions} search={NO_SEARCH} onSearch={ignoreSearch} onStep={showNode}>
      <ChangedNodes>{children({ live, status })}</ChangedNodes>
    </RunProvider>
  );
}

/** Provide the nodes that differ from the version that the run has. */
function ChangedNodes({ children }: { children: ReactNode }): ReactNode {
  const { agentId } = useEditor();
  const document = useDocument();
  const versionId = useRun(({ header }) => (header?.agentId === agentId && header.origin?.kind !== "debug" ? header.versionId : null)); // one node alone has a hidden version
  const [version, setVersion] = useState<{ id: string; document: Document } | null>(null);
  useEffect(() => {
    if (!versionId) return;
    const aborted = new AbortController();
    readVersion(agentId, versionId, aborted.signal).then(
      ({ text }) => setVersion({ id: versionId, document: withNodes(objectOf(objectOf(readJson(text)).document)) }),
      () => undefined, // a version that was deleted: then nothing is marked
    );
    return () => aborted.abort();
  }, [agentId, versionId]);
  const changed = useMemo(() => (version !== null && version.id === versionId ? changedNodes(version.document, document) : NO_NODES), [version, versionId, document]);
  return <ChangedNodesContext value={changed}>{children}</ChangedNodesContext>;
}

function noRun(): OpenRun {
  return { store: new RunStore(), live: null, contents: NO_CONTENTS };
}

const NO_SEARCH: RunSearch = {};
const ignoreSearch = (): void => undefined; // the editor's address says which node is selected
const missing = (): Promise<never> => Promise.reject(new Error("no run is open"));
const NO_CONTENTS: RunContents = { stepValues: missing, callBodies: missing, toolBodies: missing, rawStep: missing, eventBody: missing };
