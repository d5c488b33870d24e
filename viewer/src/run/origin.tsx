/** Where a run comes from: the run that it repeats, the step at which a fork starts, and what was changed. */
import { Link } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";

import type { RunOrigin } from "../store/run";
import { texts } from "../texts";
import { CopyMark } from "../ui/copy-mark";
import { visibleName } from "../ui/visible-text";
import { editText, placeText, shortId } from "./origin-texts";
import { useNodeNames } from "./use-run";

const t = texts.copies;
const FIRST_EDITS = 3;
const LINK = "inline-block min-h-6 leading-6 text-accent underline";

interface Props {
  origin: RunOrigin;
  runId: string;
  /** Whether other runs have pages: not for a run out of a file. */
  hasLinks: boolean;
}

export function Origin({ origin, runId, hasLinks }: Props): ReactNode {
  const names = useNodeNames();
  const kind = { rerun: t.rerunOf, fork: t.forkOf }[origin.kind] ?? t.copyOf(visibleName(origin.kind, 30));
  const at = origin.from.slice(0, FIRST_EDITS).map((place) => placeText(place, names));
  const source = origin.runId;
  if (source === null) return <span className="text-ink-2">{t.starts[origin.kind] ?? t.startedBy(visibleName(origin.kind, 30))}</span>;
  return (
    <span data-testid="origin" data-kind={origin.kind} data-run-id={source} className="flex flex-wrap items-center gap-x-1.5 text-ink-2 [overflow-wrap:anywhere]">
      <span className="inline-flex items-center gap-1">
        <CopyMark kind={origin.kind} /> {kind}
      </span>
      {hasLinks ? (
        <Link to="/runs/$runId" params={{ runId: source }} search={{}} className={`font-mono text-xs ${LINK}`} title={source}>
          {shortId(source)}
        </Link>
      ) : (
        <span className="font-mono text-xs">{source}</span>
      )}
      {at.length ? (
        <span>
          {t.at} <bdi className="text-ink">{at.join(", ")}</bdi>
          {origin.from.length > at.length ? ` ${t.more(origin.from.length - at.length)}` : null}
        </span>
      ) : null}
      {origin.edits.length ? <Edits edits={origin.edits.map((edit) => editText(edit, names))} /> : null}
      {hasLinks ? (
        <Link to="/compare/$a/$b" params={{ a: source, b: runId }} search={{}} className={LINK}>
          {t.compare}
        </Link>
      ) : null}
    </span>
  );
}

function Edits({ edits }: { edits: readonly string[] }): ReactNode {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? edits : edits.slice(0, FIRST_EDITS);
  return (
    <span data-testid="origin-edits">
      {t.changed} <bdi className="text-ink">{shown.join(", ")}</bdi>
      {shown.length < edits.length ? (
        <button type="button" className={`ml-1 ${LINK}`} onClick={() => setWhole(true)}>
          {t.more(edits.length - shown.length)}
        </button>
      ) : null}
    </span>
  );
}
