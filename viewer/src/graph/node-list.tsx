/** The nodes of a graph as a list: the same names, states and counts as on the drawing, in the order of the document. */
import type { ReactNode } from "react";

import { useRunContext, useRunState } from "../run/use-run";
import type { Graph, GraphNode } from "../store/graph";
import { NODE_LOOKS, nodeState } from "../store/node-states";
import { texts } from "../texts";
import { StateBadge } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { countsText, stepToShow } from "./node-facts";

export function NodeList({ graph }: { graph: Graph }): ReactNode {
  const state = useRunState();
  const { selectStep } = useRunContext();
  const level = (node: GraphNode): number => (node.parent === null ? 0 : 1);
  return (
    <ul aria-label={texts.graph.nodes} className="min-h-0 flex-1 overflow-auto px-3 pt-12 pb-3">
      {graph.nodes.map((node) => {
        const shown = nodeState(state, node.id);
        const summary = state.nodes.get(node.id);
        const step = stepToShow(state, node.id);
        return (
          <li
            key={node.id}
            data-testid="node"
            data-node-id={node.id}
            data-state={shown}
            data-counts={JSON.stringify(summary?.counts ?? {})}
            className="flex flex-wrap items-center gap-2 border-b border-line py-1"
            style={{ paddingLeft: level(node) * 20 }}
          >
            <StateBadge look={NODE_LOOKS[shown]} extra={summary && summary.steps > 1 ? countsText(summary) : ""} />
            {step === null ? (
              <bdi>{visibleName(node.name, 120)}</bdi>
            ) : (
              <button type="button" className="min-h-6 text-accent underline" onClick={() => selectStep(step)}>
                <bdi>{visibleName(node.name, 120)}</bdi>
              </button>
            )}
            <span className="text-ink-2">{visibleName(node.component, 40)}</span>
          </li>
        );
      })}
    </ul>
  );
}
