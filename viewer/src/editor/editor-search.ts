/** The search parameters of the editor. What is not valid is left out. */

export const TABS = ["form", "run"] as const;
export type PanelTab = (typeof TABS)[number];

export interface EditorSearch {
  /** The selected node. */
  node?: string;
  /** The tab of the right column; the form if it is not given. */
  tab?: PanelTab;
  /** The run that is shown on the drawing. */
  run?: string;
  /** Zoom and centre of the drawing: `1.25,300,-40`. */
  z?: string;
}

export interface View {
  zoom: number;
  x: number;
  y: number;
}

const MOST = 200;

export function editorSearch(search: Readonly<Record<string, unknown>>): EditorSearch {
  const { node, run, z } = search;
  const tab = TABS.find((each) => each === search.tab);
  return {
    ...(typeof node === "string" && node && node.length <= MOST ? { node } : {}),
    ...(tab && tab !== "form" ? { tab } : {}),
    ...(typeof run === "string" && /^[0-9a-f]{32}$/.test(run) ? { run } : {}),
    ...(typeof z === "string" && parseView(z) ? { z } : {}),
  };
}

export function parseView(text: string | undefined): View | null {
  const [zoom, x, y, ...others] = (text ?? "").split(",").map((part) => (part.trim() ? Number(part) : Number.NaN));
  if (zoom === undefined || x === undefined || y === undefined || others.length) return null;
  return [zoom, x, y].every(Number.isFinite) && zoom >= 0.03 && zoom <= 2 ? { zoom, x, y } : null;
}

export function writeView({ zoom, x, y }: View): string {
  return `${Number(zoom.toFixed(3))},${Math.round(x)},${Math.round(y)}`;
}
