/** The filters of the list of runs. */
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState, type ReactNode } from "react";

import { listAgents } from "../api/runs";
import { RUN_LOOKS } from "../store/run-status";
import { texts } from "../texts";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { hasFilters, TIMES, toggledStatus, type RunListSearch } from "./run-list-search";

const t = texts.runs;
const SELECT = "min-h-7 max-w-48 rounded border border-line-strong bg-surface px-1";

interface Props {
  search: RunListSearch;
  onChange: (change: Partial<Record<keyof RunListSearch, string | undefined>>) => void;
  onClear: () => void;
}

export function RunFilters({ search, onChange, onClear }: Props): ReactNode {
  const agents = useQuery({ queryKey: ["agents"], queryFn: ({ signal }) => listAgents(signal) });
  const chosen = search.status?.split(",") ?? [];
  return (
    <div className="flex shrink-0 flex-wrap items-center gap-x-4 gap-y-2 border-b border-line px-3 py-2">
      <SearchField text={search.q ?? ""} onSearch={(q) => onChange({ q })} />
      <div role="group" aria-label={t.status} className="flex flex-wrap gap-1">
        {Object.entries(RUN_LOOKS).map(([status, look]) => (
          <Button key={status} aria-pressed={chosen.includes(status)} onClick={() => onChange({ status: toggledStatus(search, status) })}>
            <span aria-hidden="true">{look.icon}</span>
            {look.word}
          </Button>
        ))}
      </div>
      <label className="flex items-center gap-1">
        <span className="text-ink-2">{t.agent}</span>
        <select className={SELECT} value={search.agent ?? ""} onChange={(event) => onChange({ agent: event.target.value })}>
          <option value="">{t.allAgents}</option>
          {agents.data?.agents.map((agent) => (
            <option key={agent.id} value={agent.id}>
              {visibleName(agent.title, 60)}
            </option>
          ))}
          {search.agent !== undefined && !agents.data?.agents.some((agent) => agent.id === search.agent) ? (
            <option value={search.agent}>{search.agent}</option>
          ) : null}
        </select>
      </label>
      <label className="flex items-center gap-1">
        <span className="text-ink-2">{t.time}</span>
        <select className={SELECT} value={search.time ?? ""} onChange={(event) => onChange({ time: event.target.value })}>
          <option value="">{t.times.any}</option>
          {(Object.keys(TIMES) as (keyof typeof TIMES)[]).map((time) => (
            <option key={time} value={time}>
              {t.times[time]}
            </option>
          ))}
        </select>
      </label>
      <label className="flex min-h-6 items-center gap-1" title={t.troubleHint}>
        <input type="checkbox" checked={search.trouble === "1"} onChange={(event) => onChange({ trouble: event.target.checked ? "1" : "" })} />
        {t.trouble}
      </label>
      {hasFilters(search) ? <Button onClick={onClear}>{t.clear}</Button> : null}
    </div>
  );
}

function SearchField({ text, onSearch }: { text: string; onSearch: (text: string) => void }): ReactNode {
  const [typed, setTyped] = useState(text);
  useEffect(() => setTyped(text), [text]);
  return (
    <form
      role="search"
      className="flex min-w-0 flex-1 basis-56 items-center gap-1 sm:max-w-72"
      onSubmit={(event) => {
        event.preventDefault();
        onSearch(typed.trim());
      }}
    >
      <input
        type="search"
        aria-label={t.search}
        placeholder={t.placeholder}
        value={typed}
        maxLength={300}
        onChange={(event) => {
          setTyped(event.target.value);
          if (event.target.value === "") onSearch("");
        }}
        className="min-h-7 w-full min-w-0 rounded border border-line-strong bg-surface px-2 placeholder:text-ink-2"
      />
      <Button type="submit" aria-label={t.search}>⏎</Button>
    </form>
  );
}
