/** A run: its header, what became of it, the main pane with four views, the film bar, and the inspector of the selected step. */
import * as Tabs from "@radix-ui/react-tabs";
import { lazy, Suspense, useEffect, useMemo, useRef, type ReactNode } from "react";

import { VIEWS, type RunSearch, type View } from "./run-search";
import type { RunStore } from "../store/run-store";
import { runLook } from "../store/run-status";
import { texts } from "../texts";
import { useAnnounceState } from "../ui/announcer";
import { ErrorBoundary } from "../ui/error-boundary";
import { Empty } from "../ui/parts";
import { TabList } from "../ui/tabs";
import { useNarrow } from "../ui/use-width";
import { useStatusIcon } from "../ui/favicon";
import { visibleName } from "../ui/visible-text";
import type { RunContents } from "./contents";
import { Hatches } from "./bars";
import { ExplainBar } from "./explain-bar";
import { FilmBar } from "./film-bar";
import { Inspector } from "./inspector";
import { ItemsPanel } from "./items-panel";
import { LogPane } from "./log-pane";
import { RunHeader } from "./run-header";
import { RunKeys } from "./run-keys";
import { RunProvider } from "./run-provider";
import { StepsPane } from "./steps-pane";
import { RunContext, useRun, useRunContext, type RunActions } from "./use-run";

const GraphPane = lazy(() => import("../graph/graph-pane"));
const TalkPane = lazy(() => import("./talk-pane"));

interface Props {
  store: RunStore;
  contents: RunContents;
  search: RunSearch;
  onSearch: (change: Partial<RunSearch>, replace?: boolean) => void;
  actions?: RunActions;
  /** What stands between the header and the sentence on the run, for example its buttons. */
  children?: ReactNode;
}

export function RunView({ store, contents, search, onSearch, actions, children }: Props): ReactNode {
  return (
    <RunProvider store={store} contents={contents} search={search} onSearch={onSearch} actions={actions ?? null}>
      <Title />
      <StatusAnnouncements />
      <Hatches />
      <RunKeys />
      <RunHeader>{children}</RunHeader>
      <ExplainBar />
      <div className="relative flex min-h-0 flex-1">
        <div className="flex min-h-0 min-w-0 flex-1 flex-col">
          <MainPane />
          {search.items === undefined ? null : (
            <ErrorBoundary>
              <ItemsPanel key={search.items} stepId={search.items} />
            </ErrorBoundary>
          )}
          <FilmBar />
        </div>
        {search.step === undefined ? null : <SelectedStep tab={search.tab ?? "overview"} onTab={(tab) => onSearch({ tab })} />}
      </div>
    </RunProvider>
  );
}

function Title(): ReactNode {
  const header = useRun((state) => state.header);
  const look = runLook(header?.status ?? "");
  useStatusIcon(look.tone);
  if (!header) return null;
  return <title>{`${look.icon} ${visibleName(look.word, 40)} · ${visibleName(header.agentTitle ?? header.id, 80)} · Easel`}</title>;
}

/** Says each other status of a run that is followed. */
function StatusAnnouncements(): ReactNode {
  const announceState = useAnnounceState();
  const status = useRun((state) => (state.server === null ? "" : (state.header?.status ?? "")));
  const known = useRef(status);
  useEffect(() => {
    if (known.current && status && known.current !== status) announceState("run", texts.run.isNow(visibleName(runLook(status).word, 40)));
    known.current = status;
  }, [status, announceState]);
  return null;
}

function MainPane(): ReactNode {
  const { search, onSearch } = useRunContext();
  const view = search.view ?? "graph";
  return (
    <Tabs.Root value={view} onValueChange={(value) => onSearch({ view: value as View })} className="flex min-h-0 min-w-0 flex-1 flex-col">
      <TabList label="Views of the run" tabs={VIEWS} names={texts.run.views} className="shrink-0 border-b border-line px-2" />
      {VIEWS.map((each) => (
        <Tabs.Content key={each} value={each} className="flex min-h-0 flex-1 flex-col" tabIndex={-1}>
          <ErrorBoundary>
            <Suspense fallback={<Empty>{texts.inspector.loading}</Empty>}>
              <Pane view={each} />
            </Suspense>
          </ErrorBoundary>
        </Tabs.Content>
      ))}
    </Tabs.Root>
  );
}

function Pane({ view }: { view: View }): ReactNode {
  const context = useRunContext();
  const filmed = useMemo(() => ({ ...context, store: context.film }), [context]);
  switch (view) {
    case "graph":
      return (
        <RunContext value={filmed}>
          <GraphPane />
        </RunContext>
      );
    case "time":
      return <StepsPane />;
    case "log":
      return <LogPane />;
    case "talk":
      return <TalkPane />;
  }
}

function SelectedStep(props: Parameters<typeof Inspector>[0]): ReactNode {
  const isNarrow = useNarrow(1000);
  const { selectStep } = useRunContext();
  return (
    <aside
      aria-label={texts.inspector.title}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || event.defaultPrevented) return;
        event.preventDefault();
        selectStep(null);
      }}
      className={
        isNarrow
          ? "absolute inset-0 z-30 flex flex-col bg-surface"
          : "flex w-[38%] max-w-[720px] min-w-[360px] shrink-0 flex-col border-l border-line"
      }
    >
      <ErrorBoundary>
        <Inspector {...props} />
      </ErrorBoundary>
    </aside>
  );
}
