/** `/overview`: figures of the runs of a range of time. */
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";

import { readOverview } from "../api/figures";
import type { Overview } from "../api/replies";
import { serverNow } from "../api/server-clock";
import { DurationChart } from "../overview/duration-chart";
import { countedFrom, partsOf } from "../overview/figures";
import { NodeTables } from "../overview/nodes";
import { isValidRange, overviewQuery, overviewSearch, RANGES, type OverviewSearch, type RangeName } from "../overview/overview-search";
import { RunsChart } from "../overview/runs-chart";
import { AgentShares, ModelShares } from "../overview/shares";
import { Tiles } from "../overview/tiles";
import { WaitingRuns } from "../overview/waiting";
import { texts } from "../texts";
import { AgentSelect, SELECT } from "../ui/agent-select";
import { minute, moment } from "../ui/format";
import { Button, Empty } from "../ui/parts";
import { TopBar } from "../ui/shell";
import { TimeRange } from "../ui/time-range";

const t = texts.overview;
const route = getRouteApi("/signed-in/overview");
const REFRESH_MS = 15_000;

export function OverviewPage(): ReactNode {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const onChange = (change: { [Name in keyof OverviewSearch]?: string | undefined }): void => {
    void navigate({ search: (now) => overviewSearch({ ...now, ...change }) });
  };
  const { data, error, isPending, refetch } = useQuery({
    queryKey: ["overview", JSON.stringify(search)],
    queryFn: ({ signal }) => readOverview(overviewQuery(search, serverNow()), signal),
    refetchInterval: search.to === undefined ? REFRESH_MS : false,
    staleTime: 0,
    placeholderData: keepPreviousData,
  });
  return (
    <main data-testid="page" data-page="overview" data-ready={isPending ? "0" : "1"} data-live={search.to === undefined ? "polling" : "off"} className="flex min-h-0 flex-1 flex-col">
      <title>{`${t.title} · Easel`}</title>
      <TopBar
        crumbs={<h1 className="font-semibold">{t.title}</h1>}
        actions={data ? <span className="truncate text-ink-2 tabular-nums">{t.asOf(moment(data.now))}</span> : null}
      />
      <Filters search={search} onChange={onChange} />
      {error ? (
        <p role="alert" data-tone="red" className="flex shrink-0 flex-wrap items-center gap-2 bg-tone-soft px-3 py-1.5 text-tone">
          {data ? null : `${t.failed} `}
          {error.message}
          <Button onClick={() => void refetch()}>{texts.goOn}</Button>
        </p>
      ) : null}
      {isPending ? <Empty>{t.loading}</Empty> : null}
      {data ? <Figures overview={data} agent={search.agent} /> : null}
    </main>
  );
}

function Figures({ overview, agent }: { overview: Overview; agent: string | undefined }): ReactNode {
  const parts = partsOf(overview);
  const [from, to] = [countedFrom(overview), Date.parse(overview.to)];
  return (
    <div className="min-h-0 flex-1 overflow-auto" tabIndex={0} role="region" aria-label={t.title}>
      <div className="mx-auto flex max-w-[1600px] flex-col gap-3 p-3">
        {overview.capped ? (
          <p role="note" data-tone="amber" className="rounded bg-tone-soft px-3 py-1.5 text-tone">
            {t.capped(minute(from))}
          </p>
        ) : null}
        <Tiles tiles={overview.tiles} from={from} to={to} agent={agent} />
        {overview.tiles.runs ? (
          <div className="grid grid-cols-1 gap-3 lg:grid-cols-2">
            <RunsChart parts={parts} agent={agent} />
            <DurationChart parts={parts} agent={agent} />
            <AgentShares overview={overview} />
            <ModelShares overview={overview} />
            <NodeTables overview={overview} />
          </div>
        ) : (
          <Empty>{t.none}</Empty>
        )}
        <WaitingRuns overview={overview} agent={agent} />
      </div>
    </div>
  );
}

interface FiltersProps {
  search: OverviewSearch;
  onChange: (change: { [Name in keyof OverviewSearch]?: string | undefined }) => void;
}

function Filters({ search, onChange }: FiltersProps): ReactNode {
  const isCustom = search.from !== undefined;
  const [isChoosing, setChoosing] = useState(false);
  return (
    <div className="flex shrink-0 flex-wrap items-center gap-x-4 gap-y-2 border-b border-line px-3 py-2">
      <label className="flex items-center gap-1">
        <span className="text-ink-2">{t.time}</span>
        <select
          className={SELECT}
          value={isCustom || isChoosing ? "custom" : (search.time ?? "day")}
          onChange={({ target: { value } }) => {
            setChoosing(value === "custom");
            if (value !== "custom") onChange({ time: value, from: undefined, to: undefined });
          }}
        >
          {(Object.keys(RANGES) as RangeName[]).map((name) => (
            <option key={name} value={name}>
              {t.times[name]}
            </option>
          ))}
          <option value="custom">{t.times.custom}</option>
        </select>
      </label>
      {isCustom || isChoosing ? (
        <TimeRange key={`${search.from} ${search.to}`} from={search.from} to={search.to} isValid={isValidRange} error={t.badRange} onChange={(from, to) => onChange({ from, to, time: undefined })} />
      ) : null}
      <AgentSelect label={t.agent} all={t.allAgents} value={search.agent} onChange={(agent) => onChange({ agent })} />
    </div>
  );
}
