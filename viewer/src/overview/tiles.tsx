/** The figures of the whole range, each with a link to its runs. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import type { OverviewTiles } from "../api/replies";
import type { RunListSearch } from "../runs/run-list-search";
import { texts } from "../texts";
import { count, duration } from "../ui/format";
import { listFilter } from "./figures";
import { costText } from "./cost";

const t = texts.overview;

interface Props {
  tiles: OverviewTiles;
  from: number;
  to: number;
  agent: string | undefined;
}

export function Tiles({ tiles, from, to, agent }: Props): ReactNode {
  const ended = tiles.succeeded + tiles.failed;
  const rate = tiles.failure_rate === null ? "–" : `${(tiles.failure_rate * 100).toFixed(tiles.failure_rate && tiles.failure_rate < 0.1 ? 1 : 0)} %`;
  const ofEnded = listFilter(from, to, agent, "succeeded,failed");
  const waiting: RunListSearch = { status: "waiting", ...(agent && { agent }) };
  return (
    <dl className="grid grid-cols-2 gap-2 sm:grid-cols-4 xl:grid-cols-7">
      <Tile name={t.tiles.runs} value={count(tiles.runs)} note={tiles.runs ? t.active(tiles.active) : ""} search={listFilter(from, to, agent)} />
      <Tile name={t.tiles.failed} value={rate} note={ended ? t.failures(tiles.failed, ended) : ""} search={listFilter(from, to, agent, "failed")} tone={tiles.failed ? "red" : undefined} />
      <Tile name={t.tiles.median} value={duration(tiles.p50_ms)} note={t.ofEnded} search={ofEnded} />
      <Tile name={t.tiles.p95} value={duration(tiles.p95_ms)} note={t.ofEnded} search={ofEnded} />
      <Tile name={t.tiles.tokens} value={count(tiles.tokens)} search={listFilter(from, to, agent)} />
      <Tile name={t.tiles.cost} value={costText(tiles.cost) ?? "–"} note={tiles.unpriced_calls ? t.unpriced(tiles.unpriced_calls) : ""} search={listFilter(from, to, agent)} />
      <Tile name={t.tiles.waiting} value={tiles.waiting_is_capped ? `${count(tiles.waiting)}+` : count(tiles.waiting)} note={t.anyTime} search={waiting} tone={tiles.waiting ? "violet" : undefined} />
    </dl>
  );
}

interface TileProps {
  name: string;
  value: string;
  note?: string;
  search: RunListSearch;
  tone?: string | undefined;
}

function Tile({ name, value, note = "", search, tone }: TileProps): ReactNode {
  return (
    <div className="relative flex min-w-0 flex-col rounded-lg border border-line px-3 py-2 focus-within:border-accent hover:bg-panel" {...(tone === undefined ? {} : { "data-tone": tone })}>
      <dt className="text-ink-2">{name}</dt>
      <dd className={`text-lg leading-7 font-semibold break-words tabular-nums ${tone === undefined ? "" : "text-tone"}`}>
        <Link to="/runs" search={search} className="after:absolute after:inset-0 after:content-['']" aria-label={`${name}: ${value}`}>
          {value}
        </Link>
      </dd>
      <dd className="text-xs text-ink-2">{note}</dd>
    </div>
  );
}
