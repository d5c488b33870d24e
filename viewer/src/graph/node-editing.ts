/** What the editor adds to the nodes of a drawing: handles to draw edges from, findings, and selecting instead of opening a step. */
import { createContext, type ComponentType, type KeyboardEvent, type MouseEvent, type ReactNode } from "react";

import type { GraphNode } from "../store/graph";

export interface NodeEditing {
  /** Stands in each node, in place of the ends of edges. */
  Extras: ComponentType<{ node: GraphNode; isSelected: boolean }>;
  /** What stands for the state of a node as long as no run is open. */
  iconOf(node: GraphNode): ReactNode;
  /** What is said about a node beside its name, for screen readers. */
  describe(node: GraphNode): string;
  onClick(nodeId: string, event: MouseEvent): void;
  onKeyDown(nodeId: string, event: KeyboardEvent): void;
}

/** Null where a drawing is only shown. */
export const NodeEditingContext = createContext<NodeEditing | null>(null);
