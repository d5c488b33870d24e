/** The parameters of one node, to read. */
import type { ReactNode } from "react";

import { texts } from "../texts";
import { Button } from "../ui/parts";
import { NamedValue } from "../ui/values";
import { visibleName } from "../ui/visible-text";
import { nodesOf, unwrapped, type CanvasDocument } from "../versions/document";

const t = texts.agent;

export function NodeParameters({ document, nodeId, onClose }: { document: CanvasDocument; nodeId: string; onClose: () => void }): ReactNode {
  const node = nodesOf(unwrapped(document)).get(nodeId);
  const params = Object.entries(node?.params ?? {});
  return (
    <section data-testid="parameters" data-node-id={nodeId}>
      <div className="flex items-start gap-2">
        <div className="min-w-0 flex-1">
          <h2 className="truncate font-semibold">
            <bdi>{visibleName(node?.name ?? nodeId, 120)}</bdi>
          </h2>
          <p className="truncate text-ink-2">
            {visibleName(node?.component ?? "", 40)} · <span className="font-mono text-xs">{visibleName(nodeId, 80)}</span>
          </p>
        </div>
        <Button aria-label={texts.close} onClick={onClose}>
          ✕
        </Button>
      </div>
      {params.map(([name, value]) => (
        <NamedValue key={name} name={name} value={value} />
      ))}
      {node === undefined ? <p>{t.unknownNode}</p> : params.length ? null : <p className="text-ink-2">{t.noParameters}</p>}
    </section>
  );
}
