/** `/agents/{id}`: one agent: its drawing, the parameters of a node, findings, recent runs. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { lazy, Suspense, useMemo, useState, type ReactNode } from "react";

import type { AgentSearch } from "../agents/agent-search";
import { errorsOf, FindingList } from "../agents/finding-list";
import { LINK_BUTTON, PRIMARY } from "../agents/looks";
import { useMayChange } from "../agents/may-change";
import { NodeParameters } from "../agents/node-parameters";
import { RecentRuns } from "../agents/recent-runs";
import { StartDialog } from "../agents/start-dialog";
import { DRAFT, readAgent, readDraft, readVersion } from "../api/agents";
import type { AgentHead, FindingRow } from "../api/replies";
import { ApiError } from "../api/request";
import { texts } from "../texts";
import { Button, Empty } from "../ui/parts";
import { TopBar } from "../ui/shell";
import { useNarrow } from "../ui/use-width";
import { visibleName, visibleText } from "../ui/visible-text";
import { graphOf, type CanvasDocument } from "../versions/document";
import { versionName } from "../versions/version-name";

const CanvasDrawing = lazy(() => import("../graph/canvas-drawing"));
const t = texts.agent;
const route = getRouteApi("/signed-in/agents/$agentId");
const NO_FINDINGS: readonly FindingRow[] = [];

export function AgentPage(): ReactNode {
  const { agentId } = route.useParams();
  const { version } = route.useSearch();
  const head = useQuery({ queryKey: ["agent", agentId], queryFn: ({ signal }) => readAgent(agentId, signal), staleTime: 0 });
  const draft = useQuery({ queryKey: ["draft", agentId], queryFn: ({ signal }) => readDraft(agentId, signal), staleTime: 0, enabled: head.isSuccess });
  const fixed = useQuery({
    queryKey: ["version", agentId, version],
    queryFn: ({ signal }) => readVersion(agentId, version ?? DRAFT, signal),
    enabled: head.isSuccess && version !== undefined,
  });
  const shown = version === undefined ? draft : fixed;
  const error = head.error ?? shown.error;
  const isMissing = error instanceof ApiError && (error.status === 404 || error.status === 400);
  return (
    <main
      data-testid="page"
      data-page={isMissing ? "missing" : "agent"}
      data-ready={head.isError || shown.isSuccess || shown.isError ? "1" : "0"}
      data-live="off"
      className="flex min-h-0 flex-1 flex-col"
    >
      {head.data ? (
        <Agent
          agent={head.data}
          document={shown.data?.document ?? null}
          findings={draft.data?.findings ?? NO_FINDINGS}
          name={version === undefined ? t.draft : fixed.data ? versionName(fixed.data) : t.draft}
          error={error}
        />
      ) : error ? (
        <Missing id={agentId} error={error} isMissing={isMissing} />
      ) : (
        <Empty>{texts.agents.loading}</Empty>
      )}
    </main>
  );
}

function Missing({ id, error, isMissing }: { id: string; error: Error; isMissing: boolean }): ReactNode {
  return (
    <div className="p-6">
      <title>{`${texts.missing.title} · Easel`}</title>
      <h1 className="mb-2 text-lg font-semibold">{isMissing ? t.missing(visibleName(id, 40)) : error.message}</h1>
      <Link to="/agents" className="text-accent underline">
        {t.back}
      </Link>
    </div>
  );
}

interface AgentProps {
  agent: AgentHead;
  /** Null while it is read. */
  document: CanvasDocument | null;
  findings: readonly FindingRow[];
  name: string;
  error: Error | null;
}

function Agent({ agent, document, findings, name, error }: AgentProps): ReactNode {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const mayChange = useMayChange();
  const isNarrow = useNarrow(900);
  const [isStarting, setStarting] = useState(false);
  const title = visibleName(agent.title, 120);
  const graph = useMemo(() => (document ? graphOf(document) : null), [document]);
  const select = (node: string | null): void => {
    void navigate({ search: (now: AgentSearch) => ({ ...(now.version && { version: now.version }), ...(node !== null && { node }) }), replace: true });
  };
  const isRefused = search.version === undefined && errorsOf(findings).length > 0;
  const reason = !mayChange ? texts.agents.readOnly : isRefused ? t.startRefused : undefined;
  return (
    <>
      <title>{`${title} · Easel`}</title>
      <TopBar
        crumbs={
          <span className="flex min-w-0 items-center gap-1">
            <Link to="/agents" className="inline-block min-h-6 leading-6 text-accent underline">
              {texts.agents.title}
            </Link>
            <span aria-hidden="true">›</span>
            <h1 className="min-w-0 truncate font-semibold">
              <bdi>{title}</bdi>
            </h1>
          </span>
        }
      />
      <div className="flex shrink-0 flex-wrap items-center gap-2 border-b border-line px-3 py-1.5">
        <span className="min-w-0 flex-1 basis-40 truncate text-ink-2">
          {t.shown(name)}{" "}
          {search.version === undefined ? null : (
            <Link to="/agents/$agentId" params={{ agentId: agent.id }} className="inline-block min-h-6 leading-6 text-accent underline">
              {t.showDraft}
            </Link>
          )}
        </span>
        <PlainLink to={`/agents/${agent.id}/edit`}>{t.edit}</PlainLink>
        <PlainLink to={`/agents/${agent.id}/play`}>{t.play}</PlainLink>
        <Link to="/agents/$agentId/versions" params={{ agentId: agent.id }} className={LINK_BUTTON}>
          {t.versions}
        </Link>
        <Button className={PRIMARY} disabled={reason !== undefined} {...(reason === undefined ? {} : { title: reason })} onClick={() => setStarting(true)}>
          {t.start}
        </Button>
      </div>
      {error ? (
        <p role="alert" data-tone="red" className="shrink-0 bg-tone-soft px-3 py-1.5 text-tone">
          {error instanceof ApiError && error.status === 404 ? t.missingVersion : visibleName(error.message, 300)}
        </p>
      ) : null}
      <div className={isNarrow ? "flex min-h-0 flex-1 flex-col overflow-auto" : "flex min-h-0 flex-1"}>
        <section aria-label={t.drawing} className={isNarrow ? "flex h-[55dvh] shrink-0 flex-col" : "flex min-h-0 min-w-0 flex-1 flex-col"}>
          <Suspense fallback={<Empty>{texts.graph.layingOut}</Empty>}>
            {graph ? <CanvasDrawing graph={graph} selected={search.node ?? null} onSelect={select} /> : error ? null : <Empty>{texts.agents.loading}</Empty>}
          </Suspense>
        </section>
        <aside className={`flex min-w-0 flex-col gap-4 border-line p-3 ${isNarrow ? "border-t" : "w-96 shrink-0 overflow-auto border-l"}`} aria-label={search.node === undefined ? t.about : t.parameters}>
          {search.node !== undefined && document ? <NodeParameters document={document} nodeId={search.node} onClose={() => select(null)} /> : null}
          <About agent={agent} findings={findings} onNode={select} />
          <RecentRuns agentId={agent.id} />
        </aside>
      </div>
      {isStarting ? <StartDialog agent={agent} version={search.version ?? DRAFT} versionName={name} onClose={() => setStarting(false)} /> : null}
    </>
  );
}

/** A link to a page by its path below the base path. */
function PlainLink({ to, children }: { to: string; children: ReactNode }): ReactNode {
  return (
    <Link to={to} className={LINK_BUTTON}>
      {children}
    </Link>
  );
}

function About({ agent, findings, onNode }: { agent: AgentHead; findings: readonly FindingRow[]; onNode: (nodeId: string) => void }): ReactNode {
  return (
    <>
      <section>
        <h2 className="mb-1 font-semibold">{t.about}</h2>
        <p className={`whitespace-pre-wrap [overflow-wrap:anywhere] ${agent.description ? "" : "text-ink-2"}`}>
          {agent.description ? visibleText(agent.description) : t.noDescription}
        </p>
        {agent.tags.length ? (
          <p className="mt-1 flex flex-wrap gap-1">
            {agent.tags.map((tag) => (
              <Link key={tag} to="/agents" search={{ tag }} className="inline-flex min-h-6 items-center rounded border border-line bg-panel px-1.5 hover:border-accent">
                <bdi>{visibleName(tag, 60)}</bdi>
              </Link>
            ))}
          </p>
        ) : null}
      </section>
      <section>
        <h2 className="mb-1 font-semibold">{t.findings}</h2>
        <FindingList findings={findings} onNode={onNode} />
      </section>
    </>
  );
}
