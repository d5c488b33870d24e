/** `/agents/{id}/play`: an agent tried in a chat, with the run of a turn beside it. */
import * as Radix from "@radix-ui/react-dialog";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useCallback, useMemo, useSyncExternalStore, type ReactNode } from "react";

import { ChatColumn } from "../play/chat-column";
import type { PlaySearch } from "../play/play-search";
import { runActions } from "../play/run-actions";
import { latestRun } from "../play/turns";
import { useAgent, useConversation } from "../play/use-conversation";
import type { RunSearch } from "../run/run-search";
import { RunView } from "../run/run-view";
import { useOpenRun, type OpenRun } from "../run/use-open-run";
import { LiveActions } from "../run/live-actions";
import { texts } from "../texts";
import { Button, Empty } from "../ui/parts";
import { TopBar } from "../ui/shell";
import { useNarrow } from "../ui/use-width";
import { visibleName } from "../ui/visible-text";

const t = texts.play;
const route = getRouteApi("/signed-in/agents/$agentId/play");
const WIDE = 1200;
const OF_RUN = { view: undefined, step: undefined, tab: undefined, only: undefined } as const;

export function PlayPage(): ReactNode {
  const { agentId } = route.useParams();
  return <Play key={agentId} agentId={agentId} />;
}

function Play({ agentId }: { agentId: string }): ReactNode {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const isNarrow = useNarrow(WIDE);
  const { head, error } = useAgent(agentId);
  const talk = useConversation(search.conversation);
  const open = useOpenRun(search.run ?? latestRun(talk.turns));
  const change = useCallback(
    (next: { [K in keyof PlaySearch]?: PlaySearch[K] | undefined }, replace = false): void => {
      void navigate({ search: (now) => ({ ...now, ...next }) as PlaySearch, replace });
    },
    [navigate],
  );

  if (head === null && error !== null && (error.status === 404 || error.status === 400)) return <MissingAgent />;
  const title = visibleName(head?.title ?? "", 80);
  const isReady = (head !== null && !talk.isLoading) || error !== null;
  return (
    <PageMain isReady={isReady} open={open}>
      <TopBar
        crumbs={
          <>
            <Link to="/runs" search={{ agent: agentId }} className="inline-block min-h-6 leading-6 text-accent underline">
              {texts.runs.title}
            </Link>{" "}
            › <bdi>{title}</bdi> › {t.title}
          </>
        }
        actions={isNarrow && open ? <Button onClick={() => change({ run: open.runId })}>{t.showRun}</Button> : undefined}
      />
      {open && !isNarrow ? null : (
        <>
          <title>{`${t.title} · ${title} · Easel`}</title>
          <h1 className="sr-only">{`${t.title}: ${title}`}</h1>
        </>
      )}
      {error === null ? null : (
        <p role="alert" data-tone="amber" className="shrink-0 bg-tone-soft px-3 py-1.5 text-tone">
          {visibleName(error.message, 500)}
        </p>
      )}
      <div className="flex min-h-0 flex-1">
        <section aria-label={t.chat} className={isNarrow ? "flex min-w-0 flex-1 flex-col" : "flex w-[27rem] shrink-0 flex-col border-r border-line"}>
          <ChatColumn
            agentId={agentId}
            version={search.version}
            conversation={search.conversation}
            open={open}
            onConversation={(conversation) => change({ ...OF_RUN, conversation: conversation ?? undefined, run: undefined })}
            onVersion={(version) => change({ ...OF_RUN, version: version ?? undefined, conversation: undefined, run: undefined })}
            onRun={(run, step) => change({ step, tab: undefined, run: run ?? undefined })}
          />
        </section>
        {isNarrow ? null : (
          <section aria-label={t.run} className="flex min-w-0 flex-1 flex-col">
            {open ? <TurnRun key={open.runId} open={open} agentId={agentId} search={search} change={change} /> : <Empty>{t.noRun}</Empty>}
          </section>
        )}
      </div>
      {isNarrow && search.run !== undefined && open ? (
        <RunSheet hasStep={search.step !== undefined} onClose={() => change({ ...OF_RUN, run: undefined })}>
          <TurnRun key={open.runId} open={open} agentId={agentId} search={search} change={change} />
        </RunSheet>
      ) : null}
    </PageMain>
  );
}

function PageMain({ isReady, open, children }: { isReady: boolean; open: OpenRun | null; children: ReactNode }): ReactNode {
  const mode = useSyncExternalStore(open?.live.subscribe ?? never, () => open?.live.getStatus().mode ?? "off");
  return (
    <main data-testid="page" data-page="play" data-ready={isReady ? "1" : "0"} data-live={mode} className="flex min-h-0 flex-1 flex-col">
      {children}
    </main>
  );
}

const never = (): (() => void) => () => undefined;

function MissingAgent(): ReactNode {
  return (
    <main data-testid="page" data-page="missing" data-ready="1" className="p-6">
      <title>{`${texts.missing.title} · Easel`}</title>
      <h1 className="mb-2 text-lg font-semibold">{t.missing}</h1>
      <Link to="/runs" className="text-accent underline">
        {texts.live.back}
      </Link>
    </main>
  );
}

interface TurnRunProps {
  open: OpenRun;
  agentId: string;
  search: PlaySearch;
  change: (next: { [K in keyof PlaySearch]?: PlaySearch[K] | undefined }, replace?: boolean) => void;
}

/** The run of a turn, as on its own page. */
function TurnRun({ open, agentId, search, change }: TurnRunProps): ReactNode {
  const { isLoaded, error, mode } = useSyncExternalStore(open.live.subscribe, open.live.getStatus);
  const onSearch = useCallback((next: Partial<RunSearch>, replace = false) => change(next, replace), [change]);
  const actions = useMemo(() => runActions(open, agentId, () => change({ view: "talk" })), [open, agentId, change]);
  return (
    <>
      {error === null ? null : (
        <p role="alert" data-tone="amber" className="shrink-0 bg-tone-soft px-3 py-1.5 text-tone">
          {error.status === 0 ? texts.live.away : visibleName(error.message, 500)}
        </p>
      )}
      {isLoaded ? (
        <RunView store={open.store} contents={open.contents} search={search} onSearch={onSearch} actions={actions}>
          <LiveActions runId={open.runId} mode={mode} onDone={() => void open.live.refresh()} />
        </RunView>
      ) : error === null ? (
        <Empty>{t.loading}</Empty>
      ) : null}
    </>
  );
}

/** What covers the chat on a narrow screen, until it is closed. */
function RunSheet({ children, hasStep, onClose }: { children: ReactNode; hasStep: boolean; onClose: () => void }): ReactNode {
  return (
    <Radix.Root open onOpenChange={(isOpen) => (isOpen ? undefined : onClose())}>
      <Radix.Portal>
        <Radix.Content
          aria-describedby={undefined}
          onEscapeKeyDown={(event) => {
            if (hasStep) event.preventDefault(); // it closes the step
          }}
          className="fixed inset-0 z-40 flex flex-col bg-surface text-ink"
        >
          <div className="flex min-h-11 shrink-0 items-center gap-3 border-b border-line px-3">
            <Radix.Title className="min-w-0 flex-1 truncate font-medium">{t.run}</Radix.Title>
            <Radix.Close asChild>
              <Button>{t.hideRun}</Button>
            </Radix.Close>
          </div>
          {children}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}
