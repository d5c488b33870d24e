/** The run that a share opens: read-only and live, with its open form first where visitors may answer it. */
import { useCallback, useEffect, useMemo, useState, useSyncExternalStore, type ReactNode } from "react";

import type { SharedRun as Share } from "../api/replies";
import { onSignedOut } from "../api/request";
import { resumeRun, uploadFile } from "../api/runs";
import { HIDEABLE } from "../api/shares";
import { ApiContents } from "../live/api-contents";
import { LiveRun } from "../live/live-run";
import { questionOf } from "../run/form-values";
import { AnsweredNote, OpenFormPane } from "../run/open-form";
import { RunProvider } from "../run/run-provider";
import type { RunSearch } from "../run/run-search";
import { RunView } from "../run/run-view";
import type { RunActions } from "../run/use-run";
import type { OpenForm } from "../store/run";
import { RunStore } from "../store/run-store";
import { texts } from "../texts";
import { moment } from "../ui/format";
import { Button, Empty } from "../ui/parts";
import { useTheme } from "../ui/theme";
import { visibleName } from "../ui/visible-text";
import type { ShareAccess } from "./share-access";

const t = texts.share;

interface Props {
  share: Share;
  access: ShareAccess;
  search: RunSearch;
  onSearch: (change: Partial<RunSearch>, replace?: boolean) => void;
}

interface OpenRun {
  store: RunStore;
  contents: ApiContents;
  live: LiveRun;
}

export function SharedRun({ share, access, ...props }: Props): ReactNode {
  const runId = share.run_id;
  const [run, setRun] = useState<OpenRun | null>(null);
  useEffect(() => {
    const store = new RunStore();
    const live = new LiveRun(runId, store, true);
    setRun({ store, contents: new ApiContents(runId, true), live });
    live.start();
    return () => live.stop();
  }, [runId]);
  useEffect(() => onSignedOut(() => void access.check()), [access]);
  return run ? <Loaded run={run} share={share} access={access} {...props} /> : null;
}

function Loaded({ run: { store, contents, live }, share, access, search, onSearch }: Props & { run: OpenRun }): ReactNode {
  const status = useSyncExternalStore(live.subscribe, live.getStatus);
  const forms = useSyncExternalStore(store.subscribe, () => store.getState().forms);
  const mayAnswer = useSyncExternalStore(store.subscribe, () => store.getState().server?.may.answer ?? false);
  const [wasAnswered, setAnswered] = useState(false);
  const isGone = status.error?.status === 404 && !status.isLoaded;
  useEffect(() => {
    if (isGone) access.end("gone");
  }, [isGone, access]);
  const showTalk = useCallback(() => onSearch({ view: "talk" }), [onSearch]);
  useEffect(() => {
    if (status.isLoaded) access.noteClock(store.getState().now);
  }, [status.isLoaded, access, store]);
  const actions = useMemo(
    (): RunActions => ({
      answer: async (answers, key) => {
        try {
          await resumeRun(live.runId, answers, key);
          showTalk();
        } finally {
          await live.refresh();
        }
      },
      upload: (file) => uploadFile(store.getState().header?.agentId ?? "", file),
      showTalk,
    }),
    [live, store, showTalk],
  );
  const own = mayAnswer ? forms.filter((form) => questionOf(form) === null) : [];
  const isFormFirst = own.length > 0 && search.view === undefined;
  const view = { store, contents, actions: share.may_answer ? actions : null };
  return (
    <main
      data-testid="page"
      data-page="share"
      data-ready={status.isComplete || (status.error !== null && !status.isLoaded) ? "1" : "0"}
      data-live={status.mode}
      className="flex min-h-0 flex-1 flex-col"
    >
      <ShareBar share={share} />
      {status.mode === "away" && status.error !== null ? (
        <p role="alert" data-tone="amber" className="shrink-0 bg-tone-soft px-3 py-1.5 text-tone">
          {status.error.status === 0 ? texts.live.away : visibleName(status.error.message, 500)}
        </p>
      ) : null}
      {wasAnswered ? <AnsweredNote /> : null}
      {status.isLoaded ? (
        isFormFirst ? (
          <FormFirst {...view} search={search} onSearch={onSearch} forms={own} onShowRun={showTalk} onConflict={setAnswered} />
        ) : (
          <RunView
            store={store}
            contents={contents}
            search={search}
            onSearch={onSearch}
            {...(view.actions ? { actions: view.actions } : {})}
          >
            {own.length ? <Button onClick={() => onSearch({ view: undefined })}>{t.showForm}</Button> : null}
          </RunView>
        )
      ) : (
        <Empty>{texts.inspector.loading}</Empty>
      )}
    </main>
  );
}

function ShareBar({ share }: { share: Share }): ReactNode {
  const [theme, goOn] = useTheme();
  const hidden = HIDEABLE.filter((kind) => share.hide.includes(kind)).map((kind) => texts.shares.kinds[kind].toLowerCase());
  const until = Date.parse(share.expires_at);
  return (
    <div className="flex shrink-0 flex-wrap items-center gap-x-3 gap-y-1 border-b border-line bg-panel px-3 py-1.5 text-ink-2">
      <span aria-hidden="true" className="font-semibold text-ink">
        Easel
      </span>
      <p className="min-w-0 flex-1 basis-40">
        {share.may_answer ? t.untilAnswer : t.until} <time dateTime={share.expires_at}>{moment(until).slice(0, -3)}</time>
        {hidden.length ? <>. {t.hidden(hidden.join(", "))}</> : null}
      </p>
      <Button onClick={goOn} title={texts.theme[theme]} aria-label={texts.theme[theme]}>
        {t.theme}
      </Button>
    </div>
  );
}

interface FormFirstProps {
  store: RunStore;
  contents: ApiContents;
  actions: RunActions | null;
  search: RunSearch;
  onSearch: Props["onSearch"];
  forms: readonly OpenForm[];
  onShowRun: () => void;
  onConflict: (wasAnswered: boolean) => void;
}

/** The open forms alone, for a small screen. */
function FormFirst({ forms, onShowRun, onConflict, ...run }: FormFirstProps): ReactNode {
  const title = visibleName(run.store.getState().header?.agentTitle ?? t.title, 80);
  return (
    <RunProvider {...run} onStep={onShowRun}>
      <title>{`${title} · Easel`}</title>
      <div className="min-h-0 flex-1 overflow-auto">
        <div className="mx-auto flex max-w-xl flex-col gap-3 p-3">
          <h1 className="text-base font-semibold">
            <bdi>{title}</bdi>
          </h1>
          <p className="text-ink-2">{t.form}</p>
          {forms.map((form) => (
            <OpenFormPane key={form.nodeId} form={form} onConflict={onConflict} />
          ))}
          <Button className="self-start" onClick={onShowRun}>
            {t.showRun}
          </Button>
        </div>
      </div>
    </RunProvider>
  );
}
