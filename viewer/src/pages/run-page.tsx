/** `/runs/{id}`: one run, live. */
import { getRouteApi, Link } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useState, useSyncExternalStore, type ReactNode } from "react";

import type { ApiError } from "../api/request";
import { resumeRun, uploadFile } from "../api/runs";
import { ApiContents } from "../live/api-contents";
import { LiveRun, type LiveStatus } from "../live/live-run";
import { LiveActions } from "../run/live-actions";
import { RunMenu } from "../run/run-menu";
import type { RunSearch } from "../run/run-search";
import { RunView } from "../run/run-view";
import type { RunActions } from "../run/use-run";
import { ShareButton } from "../shares/share-button";
import { RunStore } from "../store/run-store";
import { texts } from "../texts";
import { Empty } from "../ui/parts";
import { TopBar } from "../ui/shell";
import { visibleName } from "../ui/visible-text";

const t = texts.live;
const route = getRouteApi("/signed-in/runs/$runId");

export function RunPage(): ReactNode {
  const { runId } = route.useParams();
  return <OneRun key={runId} runId={runId} />;
}

interface OpenRun {
  store: RunStore;
  contents: ApiContents;
  live: LiveRun;
}

function OneRun({ runId }: { runId: string }): ReactNode {
  const [run, setRun] = useState<OpenRun | null>(null);
  useEffect(() => {
    const store = new RunStore();
    const live = new LiveRun(runId, store);
    setRun({ store, contents: new ApiContents(runId), live });
    live.start();
    return () => live.stop();
  }, [runId]);
  return run ? <RunMain run={run} /> : null;
}

function RunMain({ run: { store, contents, live } }: { run: OpenRun }): ReactNode {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const status = useSyncExternalStore(live.subscribe, live.getStatus);
  const onSearch = useCallback(
    (change: Partial<RunSearch>, replace = false): void => {
      void navigate({ search: (now) => ({ ...now, ...change }), replace });
    },
    [navigate],
  );
  const actions = useMemo(
    (): RunActions => ({
      answer: async (answers, key) => {
        try {
          await resumeRun(live.runId, answers, key);
        } finally {
          await live.refresh();
        }
      },
      upload: (file) => uploadFile(store.getState().header?.agentId ?? "", file),
      showTalk: () => onSearch({ view: "talk" }),
      loadAllRows: () => live.loadAllRows(),
      loadItem: (entry, item) => live.loadItem(entry, item),
    }),
    [live, store, onSearch],
  );
  const { isLoaded, error } = status;
  return (
    <main
      data-testid="page"
      data-page={error?.status === 404 && !isLoaded ? "missing" : "run"}
      data-ready={status.isComplete || (error !== null && !isLoaded) ? "1" : "0"}
      data-live={status.mode}
      className="flex min-h-0 flex-1 flex-col"
    >
      <TopBar
        crumbs={
          <Link to="/runs" className="inline-block min-h-6 leading-6 text-accent underline">
            {texts.runs.title}
          </Link>
        }
      />
      <Trouble status={status} runId={live.runId} />
      {isLoaded ? (
        <RunView store={store} contents={contents} search={search} onSearch={onSearch} actions={actions}>
          <LiveActions runId={live.runId} mode={status.mode} onDone={() => void live.refresh()} />
          <ShareButton runId={live.runId} />
          <RunMenu runId={live.runId} />
        </RunView>
      ) : null}
      {isLoaded || error ? null : <Empty>{texts.inspector.loading}</Empty>}
    </main>
  );
}

/** Return why there is no run with an id: it is none of a run, the run may have been deleted, or it is not this tenant's. */
function missingText(runId: string, { details }: ApiError): string {
  const id = visibleName(runId, 40);
  if (!/^[0-9a-f]{32}$/i.test(runId.replaceAll("-", ""))) return t.notAnId(id);
  const days = typeof details === "object" && details !== null && "retention_days" in details ? details.retention_days : null;
  return typeof days === "number" ? t.expired(id, days) : t.missing(id);
}

function Trouble({ status: { isLoaded, error, mode }, runId }: { status: LiveStatus; runId: string }): ReactNode {
  if (!isLoaded && error !== null && (error.status === 404 || error.status === 400)) {
    return (
      <div className="p-6">
        <title>{`${texts.missing.title} · Easel`}</title>
        <h1 className="mb-2 text-lg font-semibold">{missingText(runId, error)}</h1>
        <Link to="/runs" className="text-accent underline">
          {t.back}
        </Link>
      </div>
    );
  }
  if (mode !== "away" || error === null) return null;
  return (
    <p role="alert" data-tone="amber" className="shrink-0 bg-tone-soft px-3 py-1.5 text-tone">
      {error.status === 0 ? t.away : visibleName(error.message, 500)}
    </p>
  );
}
