/** The graph of a canvas as its author drew it, in the shape of the API (`GET /runs/{id}/graph`). */

export interface GraphNode {
  id: string;
  kind: string;
  component: string;
  name: string;
  x: number | null;
  y: number | null;
  w: number | null;
  h: number | null;
  parent: string | null;
  branches: readonly { key: string; label: string }[];
  isStart: boolean;
}

export interface GraphEdge {
  id: string;
  from: string;
  to: string;
  branch: string | null;
  kind: string;
}

export interface Graph {
  drawn: boolean;
  nodes: readonly GraphNode[];
  edges: readonly GraphEdge[];
}
