/** The filters of the list of runs. */
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState, type ReactNode } from "react";

import { listVersions } from "../api/lookups";
import { RUN_LOOKS } from "../store/run-status";
import { texts } from "../texts";
import { AgentSelect, SELECT } from "../ui/agent-select";
import { Button } from "../ui/parts";
import { useShortcut } from "../ui/shortcuts";
import { TimeRange } from "../ui/time-range";
import { useNarrow } from "../ui/use-width";
import { visibleName } from "../ui/visible-text";
import { filtersOf, hasFilters, ORIGINS, TIMES, toggledStatus, type RunListChange, type RunListSearch } from "./run-list-search";

const t = texts.runs;

interface Props {
  search: RunListSearch;
  onChange: (change: RunListChange) => void;
  /** Someone has sent a text from the search field. */
  onSearch: (text: string) => void;
  onClear: () => void;
}

export function RunFilters({ search, onChange, onSearch, onClear }: Props): ReactNode {
  const isNarrow = useNarrow(640);
  const [isOpen, setOpen] = useState(false);
  const used = Object.keys(filtersOf(search)).filter((name) => name !== "q").length;
  return (
    <div className="flex shrink-0 flex-wrap items-center gap-x-4 gap-y-2 border-b border-line px-3 py-2">
      <SearchField text={search.q ?? ""} onSearch={onSearch} />
      {isNarrow ? (
        <Button aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {t.filters(used)} {isOpen ? "▴" : "▾"}
        </Button>
      ) : null}
      {isNarrow && !isOpen ? null : <Filters search={search} onChange={onChange} />}
      {hasFilters(search) ? <Button onClick={onClear}>{t.clear}</Button> : null}
    </div>
  );
}

function Filters({ search, onChange }: Pick<Props, "search" | "onChange">): ReactNode {
  const chosen = search.status?.split(",") ?? [];
  return (
    <>
      <div role="group" aria-label={t.status} className="flex flex-wrap gap-1">
        {Object.entries(RUN_LOOKS).map(([status, look]) => (
          <Button key={status} aria-pressed={chosen.includes(status)} onClick={() => onChange({ status: toggledStatus(search, status) })}>
            <span aria-hidden="true">{look.icon}</span>
            {look.word}
          </Button>
        ))}
      </div>
      <AgentSelect label={t.agent} all={t.allAgents} value={search.agent} onChange={(agent) => onChange({ agent, version: undefined })} />
      <VersionFilter search={search} onChange={onChange} />
      <TimeFilter search={search} onChange={onChange} />
      <label className="flex items-center gap-1">
        <span className="text-ink-2">{t.origin}</span>
        <select className={SELECT} value={search.origin ?? ""} onChange={(event) => onChange({ origin: event.target.value })}>
          <option value="">{t.anyOrigin}</option>
          {ORIGINS.map((origin) => (
            <option key={origin} value={origin}>
              {t.origins[origin]}
            </option>
          ))}
        </select>
      </label>
      <label className="flex min-h-6 items-center gap-1" title={t.troubleHint}>
        <input type="checkbox" checked={search.trouble === "1"} onChange={(event) => onChange({ trouble: event.target.checked ? "1" : "" })} />
        {t.trouble}
      </label>
      {search.conversation === undefined ? null : (
        <Chip name={t.conversation} value={search.conversation.slice(0, 8)} onRemove={() => onChange({ conversation: undefined })} />
      )}
    </>
  );
}

/** A choice of the agent's versions; without an agent, the version of the address. */
function VersionFilter({ search: { agent, version }, onChange }: Pick<Props, "search" | "onChange">): ReactNode {
  const versions = useQuery({
    queryKey: ["versions", agent],
    queryFn: ({ signal }) => listVersions(agent ?? "", signal),
    enabled: agent !== undefined,
    retry: false,
  });
  const rows = versions.data?.versions ?? [];
  if (agent === undefined || !versions.isSuccess) {
    return version === undefined ? null : <Chip name={t.version} value={version.slice(0, 8)} onRemove={() => onChange({ version: undefined })} />;
  }
  const isListed = version === undefined || rows.some((each) => each.id === version);
  return (
    <label className="flex items-center gap-1">
      <span className="text-ink-2">{t.version}</span>
      <select className={SELECT} value={version ?? ""} onChange={(event) => onChange({ version: event.target.value })}>
        <option value="">{t.allVersions}</option>
        {rows.map((each) => (
          <option key={each.id} value={each.id}>
            {each.number} · {visibleName(each.title, 50)}
          </option>
        ))}
        {isListed ? null : <option value={version}>{version}</option>}
      </select>
    </label>
  );
}

function TimeFilter({ search, onChange }: Pick<Props, "search" | "onChange">): ReactNode {
  const [isChoosing, setChoosing] = useState(false);
  const isCustom = isChoosing || search.from !== undefined || search.to !== undefined;
  return (
    <>
      <label className="flex items-center gap-1">
        <span className="text-ink-2">{t.time}</span>
        <select
          className={SELECT}
          value={isCustom ? "custom" : (search.time ?? "")}
          onChange={({ target: { value } }) => {
            setChoosing(value === "custom");
            if (value !== "custom") onChange({ time: value, from: undefined, to: undefined });
          }}
        >
          <option value="">{t.times.any}</option>
          {(Object.keys(TIMES) as (keyof typeof TIMES)[]).map((time) => (
            <option key={time} value={time}>
              {t.times[time]}
            </option>
          ))}
          <option value="custom">{t.times.custom}</option>
        </select>
      </label>
      {isCustom ? (
        <TimeRange
          key={`${search.from} ${search.to}`}
          from={search.from}
          to={search.to}
          isValid={(from, to) => from < to}
          error={t.badRange}
          onChange={(from, to) => onChange({ from, to, time: undefined })}
        />
      ) : null}
    </>
  );
}

function Chip({ name, value, onRemove }: { name: string; value: string; onRemove: () => void }): ReactNode {
  return (
    <span className="flex items-center gap-1 rounded border border-accent bg-accent-soft pl-2">
      {name} <code className="font-mono text-xs">{value}</code>
      <button type="button" className="inline-flex size-6 items-center justify-center rounded hover:bg-raised" aria-label={t.removeFilter(name)} onClick={onRemove}>
        ✕
      </button>
    </span>
  );
}

function SearchField({ text, onSearch }: { text: string; onSearch: (text: string) => void }): ReactNode {
  const [typed, setTyped] = useState(text);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => setTyped(text), [text]);
  useShortcut("/", t.search, () => field.current?.focus());
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
        ref={field}
        type="search"
        aria-label={t.search}
        placeholder={t.placeholder}
        value={typed}
        maxLength={200}
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
