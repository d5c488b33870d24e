/** What differs between two documents, as a list of nodes. */
import { useMemo, type ReactNode } from "react";

import { texts } from "../../texts";
import { visibleName } from "../../ui/visible-text";
import { changesBetween } from "../document/changes";
import type { Document } from "../document/document";

const t = texts.editor.changes;

export function ChangeList({ before, after }: { before: Document; after: Document }): ReactNode {
  const { nodes, edges, others } = useMemo(() => changesBetween(before, after), [before, after]);
  if (!nodes.length && !edges && !others.length) return <p className="text-ink-2">{t.none}</p>;
  return (
    <ul data-testid="changes" className="max-h-48 list-disc overflow-auto pl-5">
      {nodes.map(({ nodeId, name, kind }) => (
        <li key={nodeId} data-node-id={nodeId} data-kind={kind}>
          <bdi>{visibleName(name, 60)}</bdi>: {t.kinds[kind]}
        </li>
      ))}
      {edges ? <li data-kind="edges">{t.edges(edges)}</li> : null}
      {others.map((key) => (
        <li key={key} data-kind="other">
          {t.other(visibleName(key, 60))}
        </li>
      ))}
    </ul>
  );
}
