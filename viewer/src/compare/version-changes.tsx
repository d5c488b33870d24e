/** In what the versions of two runs differ: nodes, parameters, edges, variables. */
import type { ReactNode } from "react";

import type { VersionDifferences } from "../api/copies";
import { texts } from "../texts";
import { visibleName } from "../ui/visible-text";
import { BothValues, sideOf } from "./both-values";

const t = texts.compare;

type Change = NonNullable<VersionDifferences["variables"]>[number];
type ChangedNode = NonNullable<VersionDifferences["changed"]>[number];

export function VersionChanges({ versions }: { versions: VersionDifferences }): ReactNode {
  const { changed, only_a: onlyA, only_b: onlyB, edges, variables, cut } = versions;
  return (
    <div className="max-h-[40dvh] overflow-auto rounded border border-line p-2" tabIndex={0} role="region" aria-label={t.versions(changed?.length ?? 0, onlyA?.length ?? 0, onlyB?.length ?? 0)}>
      {changed?.map((node) => (
        <section key={node.node_id} data-testid="changed-node" data-node-id={node.node_id} className="mb-2">
          <h3 className="font-semibold">
            <bdi>{visibleName(node.name || node.node_id, 80)}</bdi> <span className="font-normal text-ink-2">{visibleName(node.component, 40)}</span>
          </h3>
          <Changes changes={node.changes ?? []} />
        </section>
      ))}
      {variables?.length ? (
        <section className="mb-2">
          <h3 className="font-semibold">{t.variables}</h3>
          <Changes changes={variables} />
        </section>
      ) : null}
      <OnlyNodes side="a" nodes={onlyA ?? []} />
      <OnlyNodes side="b" nodes={onlyB ?? []} />
      <OnlyEdges side="a" edges={edges?.only_a ?? []} />
      <OnlyEdges side="b" edges={edges?.only_b ?? []} />
      {cut ? <p className="text-ink-2">{t.versionsCut}</p> : null}
    </div>
  );
}

function Changes({ changes }: { changes: readonly Change[] }): ReactNode {
  return changes.map((change) => (
    <BothValues key={change.path} both={{ name: change.path, kind: change.kind, a: sideOf(change.a), b: sideOf(change.b) }} isOpen={false} />
  ));
}

function OnlyNodes({ side, nodes }: { side: "a" | "b"; nodes: readonly ChangedNode[] }): ReactNode {
  if (!nodes.length) return null;
  return (
    <p data-testid="only-nodes" data-side={side} className="mb-1">
      <span className="font-semibold">{t.onlyNodes[side]}:</span> {nodes.map((node) => visibleName(node.name || node.node_id, 60)).join(", ")}
    </p>
  );
}

function OnlyEdges({ side, edges }: { side: "a" | "b"; edges: readonly Readonly<Record<string, string>>[] }): ReactNode {
  if (!edges.length) return null;
  return (
    <p className="mb-1">
      <span className="font-semibold">{t.edges[side]}:</span> {edges.map((edge) => `${visibleName(edge.from ?? "", 60)} → ${visibleName(edge.to ?? "", 60)}`).join(", ")}
    </p>
  );
}
