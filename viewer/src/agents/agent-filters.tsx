/** Search and tag above the list of agents. */
import { useEffect, useState, type ReactNode } from "react";

import { texts } from "../texts";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import type { AgentListSearch } from "./agent-search";
import { FIELD } from "./looks";

const t = texts.agents;

interface Props {
  search: AgentListSearch;
  tags: readonly string[];
  onChange: (change: { q?: string; tag?: string }) => void;
  onClear: () => void;
}

export function AgentFilters({ search, tags, onChange, onClear }: Props): ReactNode {
  const text = search.q ?? "";
  const [typed, setTyped] = useState(text);
  useEffect(() => setTyped(text), [text]);
  return (
    <div className="flex shrink-0 flex-wrap items-center gap-2 border-b border-line px-3 py-2">
      <form
        role="search"
        className="flex min-w-0 flex-1 basis-56 items-center gap-1 sm:max-w-72"
        onSubmit={(event) => {
          event.preventDefault();
          onChange({ q: typed });
        }}
      >
        <input
          type="search"
          aria-label={t.search}
          placeholder={t.placeholder}
          value={typed}
          maxLength={200}
          onChange={(event) => {
            setTyped(event.target.value);
            if (event.target.value === "") onChange({ q: "" });
          }}
          className={FIELD}
        />
        <Button type="submit" aria-label={t.search} className="min-h-8!">
          ⏎
        </Button>
      </form>
      {tags.length ? (
        <label className="flex items-center gap-1">
          {t.tag}
          <select className="min-h-8 max-w-48 rounded border border-line-strong bg-surface px-1" value={search.tag ?? ""} onChange={(event) => onChange({ tag: event.target.value })}>
            <option value="">{t.allTags}</option>
            {tags.map((tag) => (
              <option key={tag} value={tag}>
                {visibleName(tag, 60)}
              </option>
            ))}
          </select>
        </label>
      ) : null}
      {search.q || search.tag ? <Button onClick={onClear}>{t.clear}</Button> : null}
    </div>
  );
}
