/** Where a run comes from: the run that it repeats, the step at which a fork starts, and what was changed. */
import { Link } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";

import { parsePlace } from "../fork/places";
import type { RunOrigin } from "../store/run";
import { texts } from "../texts";
import { visibleName } from "../ui/visible-text";
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
  if (source === null) return <span className="text-ink-2">{t.startedBy(visibleName(origin.kind, 30))}</span>;
  return (
    <span data-testid="origin" data-kind={origin.kind} data-run-id={source} className="flex flex-wrap items-center gap-x-1.5 text-ink-2">
      {kind}
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

/** Return the end of an id: ids of runs of one day begin alike. */
export function shortId(id: string): string {
  return `…${id.slice(-8)}`;
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

type Names = ReadonlyMap<string, string>;

/** Return the place of a step in words: "reply, item 4". */
export function placeText(place: string, names: Names): string {
  const parsed = parsePlace(place);
  if (!parsed) return t.aStep;
  const items = parsed.items.map((item) => texts.time.item(item)).join(" › ");
  return visibleName(t.step(names.get(parsed.nodeId) ?? parsed.nodeId, items), 100);
}

/** Return an edit of the API's list (`params.LLM:Reply.sys_prompt`) in words: "sys_prompt of reply". */
export function editText(edit: string, names: Names): string {
  const [, kind = "", rest = ""] = /^(params|outputs|variables)\.(.+)$/.exec(edit) ?? [];
  if (kind === "variables") return visibleName(t.variable(rest), 100);
  if (!kind) return visibleName(t.edits[edit] ?? edit, 100);
  const dot = endOfOwner(rest, names);
  const [owner, name] = [rest.slice(0, dot), rest.slice(dot + 1)];
  const shown = placeText(owner, names);
  return visibleName(kind === "params" ? t.editOf(name, shown) : t.editedOutput(name, shown), 160);
}

/** Return where the name of a node, which may contain dots, ends. */
function endOfOwner(text: string, names: Names): number {
  const node = [...names.keys()].filter((id) => text.startsWith(`${id}.`)).sort((a, b) => b.length - a.length)[0];
  if (node !== undefined) return node.length;
  const item = text.indexOf("].");
  return item >= 0 ? item + 1 : text.indexOf(".");
}
