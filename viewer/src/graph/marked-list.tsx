/** The nodes of a marked drawing as a list: the same names and marks, for the keyboard and small windows. */
import type { ReactNode } from "react";

import type { Graph } from "../store/graph";
import { StateBadge } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import type { NodeMark } from "./marked-drawing";

interface Props {
  graph: Graph;
  label: string;
  marks: ReadonlyMap<string, NodeMark>;
  onNode: (nodeId: string) => void;
}

export function MarkedList({ graph, label, marks, onNode }: Props): ReactNode {
  return (
    <ul aria-label={label} className="min-h-0 flex-1 overflow-auto px-2" tabIndex={0}>
      {graph.nodes.map((node) => {
        const mark = marks.get(node.id);
        if (!mark) return null;
        const name = <bdi>{visibleName(node.name, 120)}</bdi>;
        return (
          <li key={node.id} {...mark.data} className={`flex flex-wrap items-center gap-2 border-b border-line py-1 ${node.parent === null ? "" : "pl-5"} ${mark.isSelected ? "bg-accent-soft" : ""}`}>
            {mark.looks.map((look, place) => (
              <StateBadge key={place} look={look} />
            ))}
            {mark.isActive ? (
              <button type="button" aria-pressed={mark.isSelected} className="min-h-6 text-accent underline" onClick={() => onNode(node.id)}>
                {name}
              </button>
            ) : (
              name
            )}
            <span className="text-ink-2">{mark.detail}</span>
          </li>
        );
      })}
    </ul>
  );
}
