/** `/agents`: the list of agents. */
import { getRouteApi } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";

import { AgentFilters } from "../agents/agent-filters";
import { agentListSearch } from "../agents/agent-search";
import { AgentTable } from "../agents/agent-table";
import { PRIMARY } from "../agents/looks";
import { useMayChange } from "../agents/may-change";
import { NewAgentDialog } from "../agents/new-agent-dialog";
import { useAgentList } from "../agents/use-agent-list";
import { texts } from "../texts";
import { Commands } from "../ui/commands";
import { Button, Empty } from "../ui/parts";
import { TopBar } from "../ui/shell";

const t = texts.agents;
const route = getRouteApi("/signed-in/agents");

export function AgentsPage(): ReactNode {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const list = useAgentList(search);
  const mayChange = useMayChange();
  const [isMaking, setMaking] = useState(false);
  const isFiltered = Object.keys(search).length > 0;
  const change = (next: Readonly<Record<string, string>>): void => void navigate({ search: (now) => agentListSearch({ ...now, ...next }) });
  return (
    <main data-testid="page" data-page="agents" data-ready={list.isPending ? "0" : "1"} data-live="off" className="flex min-h-0 flex-1 flex-col">
      <title>{`${t.title} · Easel`}</title>
      <TopBar
        crumbs={<h1 className="font-semibold">{t.title}</h1>}
        actions={
          <Button className={PRIMARY} disabled={!mayChange} {...(mayChange ? {} : { title: t.readOnly })} onClick={() => setMaking(true)}>
            {t.new}
          </Button>
        }
      />
      <AgentFilters search={search} tags={list.tags} onChange={change} onClear={() => void navigate({ search: {} })} />
      {list.error ? (
        <p role="alert" data-tone="red" className="flex shrink-0 items-center gap-2 bg-tone-soft px-3 py-1.5 text-tone">
          {list.rows.length ? null : `${t.failed} `}
          {list.error.message}
          <Button onClick={list.reload}>{texts.goOn}</Button>
        </p>
      ) : null}
      {list.isPending ? <Empty>{t.loading}</Empty> : null}
      {list.rows.length ? (
        <AgentTable rows={list.rows} onTag={(tag) => change({ tag })}>
          <p className="p-3 text-ink-2">
            {list.hasMore ? (
              <Button disabled={list.isLoadingMore} onClick={list.loadMore}>
                {t.more}
              </Button>
            ) : (
              t.end
            )}
          </p>
        </AgentTable>
      ) : list.isPending || list.error ? null : isFiltered ? (
        <Empty>{t.noMatch}</Empty>
      ) : (
        <NoAgents mayChange={mayChange} onMake={() => setMaking(true)} />
      )}
      {isMaking ? <NewAgentDialog onClose={() => setMaking(false)} /> : null}
    </main>
  );
}

function NoAgents({ mayChange, onMake }: { mayChange: boolean; onMake: () => void }): ReactNode {
  return (
    <section className="mx-auto w-full max-w-2xl p-6 sm:pt-14">
      <h2 className="mb-2 text-lg font-semibold">{t.emptyTitle}</h2>
      <p className="mb-4 text-ink-2">{mayChange ? t.empty : t.emptyReadOnly}</p>
      {mayChange ? (
        <p className="mb-4">
          <Button className={PRIMARY} onClick={onMake}>
            {t.new}
          </Button>
        </p>
      ) : null}
      <Commands commands={t.emptyCommands} />
    </section>
  );
}
