/** The versions of an agent; two are chosen to be compared. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { LINK_BUTTON } from "../agents/looks";
import { DRAFT } from "../api/agents";
import type { VersionRow } from "../api/replies";
import type { Look } from "../store/run-status";
import { texts } from "../texts";
import { moment } from "../ui/format";
import { Button, StateBadge } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { versionName } from "./version-name";

const t = texts.versions;
const PUBLISHED: Look = { word: t.published, icon: "▲", tone: "green", border: "solid" };
const LIKE_DRAFT: Look = { word: t.likeDraft, icon: "=", tone: "neutral", border: "dotted" };

interface Props {
  agentId: string;
  versions: readonly VersionRow[];
  chosen: { a: string | null; b: string | null };
  onChoose: (side: "a" | "b", version: string) => void;
  mayChange: boolean;
  onRestore: (version: VersionRow) => void;
}

export function VersionTable({ agentId, versions, chosen, onChoose, mayChange, onRestore }: Props): ReactNode {
  const { a, b, version, state, when, runs, action } = t.columns;
  const head = "px-2 py-1 text-left max-sm:px-1 font-normal text-ink-2";
  return (
    <div className="max-h-72 min-w-0 shrink-0 overflow-auto rounded border border-line" tabIndex={0} role="region" aria-label={t.list}>
      <table className="w-full border-collapse">
        <caption className="sr-only">{t.list}</caption>
        <thead className="sticky top-0 z-10 bg-panel">
          <tr>
            <th scope="col" className={head}>{a}</th>
            <th scope="col" className={head}>{b}</th>
            <th scope="col" className={head}>{version}</th>
            <th scope="col" className={`${head} hidden md:table-cell`}>{state}</th>
            <th scope="col" className={`${head} hidden md:table-cell`}>{when}</th>
            <th scope="col" className={`${head} hidden text-right md:table-cell`}>{runs}</th>
            <th scope="col" className={head}>
              <span className="sr-only">{action}</span>
            </th>
          </tr>
        </thead>
        <tbody>
          <tr className="border-t border-line" data-testid="version-row" data-version={DRAFT}>
            <Choices name={t.draft} id={DRAFT} chosen={chosen} onChoose={onChoose} />
            <td className="px-2 py-1 font-medium max-sm:px-1">{t.draft}</td>
            <td className="hidden md:table-cell" colSpan={3} />
            <td className="px-2 py-1 text-right max-sm:px-1">
              <Link to="/agents/$agentId" params={{ agentId }} className={LINK_BUTTON}>
                {t.open}
              </Link>
            </td>
          </tr>
          {versions.map((each) => (
            <tr key={each.id} className="border-t border-line" data-testid="version-row" data-version={each.id} data-published={each.published}>
              <Choices name={versionName(each)} id={each.id} chosen={chosen} onChoose={onChoose} />
              <td className="max-w-64 min-w-28 px-2 py-1 max-sm:min-w-0 max-sm:px-1">
                <span className="block truncate font-medium">
                  <bdi>{versionName(each)}</bdi>
                </span>
                {each.description ? <span className="block truncate text-ink-2">{visibleName(each.description, 120)}</span> : null}
                <span className="flex flex-col items-start gap-1 md:hidden">
                  <time dateTime={each.created_at} className="text-ink-2 tabular-nums">
                    {moment(Date.parse(each.created_at)).slice(0, 16)}
                  </time>
                  <States version={each} />
                </span>
              </td>
              <td className="hidden px-2 py-1 md:table-cell">
                <States version={each} />
              </td>
              <td className="hidden px-2 py-1 whitespace-nowrap text-ink-2 tabular-nums md:table-cell">
                <time dateTime={each.created_at}>{moment(Date.parse(each.created_at))}</time>
              </td>
              <td className="hidden px-2 py-1 text-right tabular-nums md:table-cell">{t.runs(each.runs_30d, each.runs_30d_is_capped)}</td>
              <td className="px-2 py-1 max-sm:px-1">
                <span className="flex flex-wrap justify-end gap-1 max-sm:flex-col max-sm:items-end">
                  <Link to="/agents/$agentId" params={{ agentId }} search={{ version: each.id }} className={LINK_BUTTON}>
                    {t.open}
                  </Link>
                  <Button
                    disabled={!mayChange || each.same_as_draft}
                    title={mayChange ? (each.same_as_draft ? t.likeDraft : undefined) : t.readOnly}
                    aria-label={`${t.restore} ${versionName(each)}`}
                    onClick={() => onRestore(each)}
                  >
                    {t.restore}
                  </Button>
                </span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function States({ version }: { version: VersionRow }): ReactNode {
  return (
    <span className="flex flex-wrap gap-1">
      {version.published ? <StateBadge look={PUBLISHED} /> : null}
      {version.same_as_draft ? <StateBadge look={LIKE_DRAFT} /> : null}
    </span>
  );
}

function Choices({ name, id, chosen, onChoose }: { name: string; id: string; chosen: Props["chosen"]; onChoose: Props["onChoose"] }): ReactNode {
  return (["a", "b"] as const).map((side) => (
    <td key={side} className="w-8 px-2 py-1 max-sm:px-0">
      <input
        type="radio"
        name={`version-${side}`}
        className="m-0.5 size-5 align-middle"
        aria-label={side === "a" ? t.chooseA(name) : t.chooseB(name)}
        checked={chosen[side] === id}
        onChange={() => onChoose(side, id)}
      />
    </td>
  ));
}
