/** `/compare/{a}/{b}`: two runs, step by step. */
import * as Tabs from "@radix-ui/react-tabs";
import { getRouteApi, Link } from "@tanstack/react-router";
import { lazy, Suspense, useCallback, type ReactNode } from "react";

import { ApiError } from "../api/request";
import { FILTERS, VIEWS, type CompareFilter, type CompareSearch, type CompareView } from "../compare/compare-search";
import { StepPane } from "../compare/step-pane";
import { StepsView } from "../compare/steps-view";
import { Summary } from "../compare/summary";
import { TimeView } from "../compare/time-view";
import { totalOf, useComparison, type LoadedComparison } from "../compare/use-comparison";
import { texts } from "../texts";
import { ErrorBoundary } from "../ui/error-boundary";
import { count } from "../ui/format";
import { Button, Empty } from "../ui/parts";
import { TopBar } from "../ui/shell";
import { TabList } from "../ui/tabs";
import { visibleText } from "../ui/visible-text";

const GraphView = lazy(() => import("../compare/graph-view").then((module) => ({ default: module.GraphView })));
const t = texts.compare;
const route = getRouteApi("/signed-in/compare/$a/$b");

export function ComparePage(): ReactNode {
  const { a, b } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const filter = search.only ?? "all";
  const comparison = useComparison(a, b, filter);
  const { head, error } = comparison;
  const onSearch = useCallback((change: CompareSearch): void => void navigate({ search: (now) => ({ ...now, ...change }) }), [navigate]);
  const onStep = useCallback((step: string | null): void => void navigate({ search: (now) => withStep(now, step) }), [navigate]);
  return (
    <main data-testid="page" data-page={error && !head ? "missing" : "compare"} data-ready={comparison.isLoading ? "0" : "1"} data-live="off" className="flex min-h-0 flex-1 flex-col">
      <title>{`${t.title} · Easel`}</title>
      <TopBar
        crumbs={
          <span className="flex items-center gap-2">
            <Link to="/runs" className="inline-block min-h-6 leading-6 text-accent underline">
              {texts.runs.title}
            </Link>
            <span aria-hidden="true">›</span>
            <h1 className="font-semibold">{t.title}</h1>
          </span>
        }
      />
      {error ? <Failure error={error} reload={comparison.reload} /> : null}
      {comparison.isLoading ? <Empty>{t.loading}</Empty> : null}
      {head ? (
        <div className="relative flex min-h-0 flex-1 flex-col overflow-y-auto">
          <Summary head={head} onRuns={(first, second) => void navigate({ params: { a: first, b: second }, search: (now) => withStep(now, null) })} onStep={onStep} onReload={comparison.reload} />
          <div
            className="contents"
            onKeyDown={(event) => {
              if (event.key === "Escape" && search.step !== undefined) onStep(null);
            }}
          >
            <Panes a={a} b={b} search={search} comparison={comparison} onSearch={onSearch} onStep={onStep} />
            {search.step === undefined ? null : (
              <ErrorBoundary key={search.step}>
                <StepPane a={a} b={b} stepId={search.step} names={comparison.names} onClose={() => onStep(null)} />
              </ErrorBoundary>
            )}
          </div>
        </div>
      ) : null}
    </main>
  );
}

function withStep({ view, only }: CompareSearch, step: string | null): CompareSearch {
  return { ...(view && { view }), ...(only && { only }), ...(step !== null && { step }) };
}

interface PanesProps {
  a: string;
  b: string;
  search: CompareSearch;
  comparison: LoadedComparison;
  onSearch: (change: CompareSearch) => void;
  onStep: (stepId: string | null) => void;
}

function Panes({ a, b, search, comparison, onSearch, onStep }: PanesProps): ReactNode {
  const view = search.view ?? "steps";
  return (
    <Tabs.Root value={view} onValueChange={(value) => onSearch({ view: value as CompareView })} className="flex min-h-64 min-w-0 flex-1 flex-col">
      <div className="flex shrink-0 flex-wrap items-center gap-x-4 border-b border-line px-2">
        <TabList label={t.viewsOf} tabs={VIEWS} names={t.views} />
        {view === "graph" ? null : <Filters comparison={comparison} filter={search.only ?? "all"} onFilter={(only) => onSearch({ only })} />}
      </div>
      {VIEWS.map((each) => (
        <Tabs.Content key={each} value={each} tabIndex={-1} className={each === view ? "flex min-h-0 flex-1 flex-col" : ""}>
          <ErrorBoundary>
            <Suspense fallback={<Empty>{t.loading}</Empty>}>
              <Pane view={each} a={a} b={b} selected={search.step ?? null} comparison={comparison} onStep={onStep} />
            </Suspense>
          </ErrorBoundary>
        </Tabs.Content>
      ))}
    </Tabs.Root>
  );
}

function Pane({ view, a, b, selected, comparison, onStep }: Omit<PanesProps, "search" | "onSearch"> & { view: CompareView; selected: string | null }): ReactNode {
  const { names } = comparison;
  switch (view) {
    case "steps":
      return <StepsView comparison={comparison} names={names} selected={selected} onSelect={onStep} />;
    case "graph":
      return <GraphView a={a} b={b} selected={selected} onSelect={onStep} />;
    case "time":
      return <TimeView a={a} b={b} comparison={comparison} names={names} selected={selected} onSelect={onStep} />;
  }
}

function Filters({ comparison, filter, onFilter }: { comparison: LoadedComparison; filter: CompareFilter; onFilter: (filter: CompareFilter) => void }): ReactNode {
  const totals = comparison.head?.totals ?? {};
  return (
    <div role="group" aria-label={t.filter} className="flex flex-wrap gap-1 py-1">
      {FILTERS.map((each) => (
        <Button
          key={each}
          aria-pressed={each === filter}
          data-testid="compare-filter"
          data-filter={each}
          data-count={totalOf(totals, each)}
          title={each === "differs" ? t.differsHint : undefined}
          onClick={() => onFilter(each)}
        >
          {t.filters[each]} <span className="text-ink-2">{count(totalOf(totals, each))}</span>
        </Button>
      ))}
    </div>
  );
}

function Failure({ error, reload }: { error: Error; reload: () => void }): ReactNode {
  const isMissing = error instanceof ApiError && (error.status === 404 || error.status === 400);
  return (
    <div role="alert" data-tone="red" className="flex shrink-0 flex-wrap items-center gap-2 bg-tone-soft px-3 py-1.5 text-tone">
      {isMissing ? t.missing : visibleText(error.message)}
      {isMissing ? null : <Button onClick={reload}>{texts.goOn}</Button>}
    </div>
  );
}
