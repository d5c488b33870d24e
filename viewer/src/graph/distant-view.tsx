/** The canvas that shows a large drawing from afar, below the zoom at which its nodes can be read. */
import { useStore, useStoreApi } from "@xyflow/react";
import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";

import type { GraphNode } from "../store/graph";
import type { Look } from "../store/run-status";
import { texts } from "../texts";
import { visibleName } from "../ui/visible-text";
import { nodeAt, paint, type DistantDrawing, type DistantLook, type EdgeLook } from "./distant-drawing";

const DASHES: Readonly<Record<Look["border"], readonly number[]>> = {
  none: [], thin: [], solid: [], thick: [], double: [6, 2], dashed: [4, 3], dotted: [1, 2],
  bare: [1, 5],
};
const EDGE_LOOKS: Readonly<Record<string, EdgeLook>> = {
  "edge-added": { colour: "green", width: 2.5, dash: [] },
  "edge-removed": { colour: "red", width: 2, dash: [3, 4] },
  "edge-taken": { colour: "ink-2", width: 2, dash: [] },
  "edge-moving": { colour: "accent", width: 2, dash: [6, 4] },
  "edge-idle": { colour: "line-strong", width: 1, dash: [4, 4] },
  "edge-static": { colour: "line-strong", width: 1, dash: [2, 3] },
  "edge-exception": { colour: "red", width: 1.5, dash: [6, 4] },
};
const PLAIN_EDGE: EdgeLook = { colour: "line-strong", width: 1.5, dash: [] };

interface Props {
  drawing: DistantDrawing;
  edges: readonly { id: string; className?: string }[];
  /** Another function where the looks are others, unless `subscribe` tells. */
  lookOf: (nodeId: string) => DistantLook;
  /** Call a function whenever `lookOf` may return something else; return what ends that. */
  subscribe?: (listener: () => void) => () => void;
  /** The node to which the button leads; by default the first one. */
  first?: string | undefined;
  /** Show a node from near, with the keyboard's focus. */
  onApproach: (nodeId: string) => void;
}

export function DistantView({ drawing, edges, lookOf, subscribe, first, onApproach }: Props): ReactNode {
  const canvas = useRef<HTMLCanvasElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  usePainting(canvas, drawing, edges, lookOf, subscribe);
  useEffect(() => {
    const focused = document.activeElement;
    if (focused instanceof HTMLElement && focused.dataset.focus !== undefined) button.current?.focus(); // the nodes go now
  }, []);
  const nodes = drawing.nodes.map(({ node }) => node);
  const target = first ?? nodes.find((node) => node.isStart && node.parent === null)?.id ?? nodes[0]?.id;
  return (
    <>
      <canvas ref={canvas} data-testid="distant-nodes" aria-hidden="true" className="pointer-events-none absolute inset-0 h-full w-full" />
      <PointedNode drawing={drawing} />
      {target === undefined ? null : (
        <button
          ref={button}
          type="button"
          onClick={() => onApproach(target)}
          className="nopan pointer-events-auto absolute top-12 left-2 z-10 not-focus-visible:sr-only min-h-8 rounded border border-line-strong bg-surface px-2"
        >
          {texts.graph.approach(nodes.length)}
        </button>
      )}
    </>
  );
}

/** Return what a node looks like from afar: plain without a look, and in two halves with two. */
export function distantLook([first, second]: readonly Look[], isSelected: boolean): DistantLook {
  return {
    icon: first?.icon ?? "",
    fill: toneFill(first?.tone ?? "neutral"),
    ...(second ? { other: { icon: second.icon, fill: toneFill(second.tone) } } : {}),
    border: second ? "neutral" : (first?.tone ?? "neutral"),
    dash: DASHES[second ? "solid" : (first?.border ?? "solid")],
    isSelected,
    state: [first, second].map((look) => look?.word).filter(Boolean).join(", "),
  };
}

/** Paint at every change of the camera, the looks, the theme and the size, at most once a frame. */
function usePainting(canvas: { current: HTMLCanvasElement | null }, drawing: DistantDrawing, edges: Props["edges"], lookOf: Props["lookOf"], subscribe: Props["subscribe"]): void {
  const flow = useStoreApi();
  const edgeLooks = useMemo(() => new Map(edges.map(({ id, className }) => [id, edgeLook(className ?? "")])), [edges]);
  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (!element || !context) return;
    let frame = 0;
    let colours = new Map<string, string>();
    const colourOf = (name: string): string => {
      const known = colours.get(name) ?? readColour(name);
      colours.set(name, known);
      return known;
    };
    const draw = (): void => {
      frame = 0;
      const { width, height, transform: [x, y, zoom] } = flow.getState();
      const scale = devicePixelRatio;
      const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
      if (element.width !== across) element.width = across;
      if (element.height !== down) element.height = down;
      context.setTransform(scale, 0, 0, scale, 0, 0);
      paint(context, drawing, { x, y, zoom }, { width, height }, lookOf, (id) => edgeLooks.get(id) ?? PLAIN_EDGE, colourOf);
      const shown: Record<string, number> = {};
      for (const { node } of drawing.nodes) {
        const { state } = lookOf(node.id);
        shown[state] = (shown[state] ?? 0) + 1;
      }
      element.dataset.counts = JSON.stringify(shown); // what tests and measurements read
    };
    const schedule = (): void => {
      frame ||= requestAnimationFrame(draw);
    };
    const theme = new MutationObserver(() => {
      colours = new Map();
      schedule();
    });
    theme.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "data-contrast"] });
    const stops = [subscribe?.(schedule), flow.subscribe(schedule)];
    draw();
    return () => {
      cancelAnimationFrame(frame);
      theme.disconnect();
      for (const stop of stops) stop?.();
    };
  }, [canvas, drawing, edgeLooks, flow, lookOf, subscribe]);
}

function edgeLook(className: string): EdgeLook {
  const classes = className.split(" ");
  for (const name of ["edge-added", "edge-removed", "edge-moving", "edge-taken", "edge-exception", "edge-static", "edge-idle"]) {
    const found = classes.includes(name) ? EDGE_LOOKS[name] : undefined;
    if (found) return found;
  }
  return PLAIN_EDGE;
}

/** Nodes to which nothing has happened are plain; the others have the colour of their state. */
function toneFill(tone: Look["tone"]): string {
  return tone === "neutral" || tone === "muted" ? "surface" : tone;
}

function readColour(name: string): string {
  const style = getComputedStyle(document.documentElement);
  const heat = name.startsWith("heat-") ? 25 * Number(name.slice(5)) : null;
  if (heat === null) return style.getPropertyValue(`--${name}`).trim();
  return `color-mix(in oklch, ${style.getPropertyValue("--amber").trim()} ${heat}%, ${style.getPropertyValue("--surface").trim()})`;
}

/** The name of the node under the pointer. */
function PointedNode({ drawing }: { drawing: DistantDrawing }): ReactNode {
  const flow = useStoreApi();
  const pane = useStore((state) => state.domNode);
  const [pointed, setPointed] = useState<{ node: GraphNode; x: number; y: number } | null>(null);
  useEffect(() => {
    if (!pane) return;
    const move = (event: PointerEvent): void => {
      const { left, top } = pane.getBoundingClientRect();
      const [x, y] = [event.clientX - left, event.clientY - top];
      const [originX, originY, zoom] = flow.getState().transform;
      const node = event.buttons === 0 ? nodeAt(drawing, (x - originX) / zoom, (y - originY) / zoom) : null;
      setPointed((known) => (node === null ? null : known?.node === node ? known : { node, x, y }));
    };
    const leave = (): void => setPointed(null);
    pane.addEventListener("pointermove", move);
    pane.addEventListener("pointerleave", leave);
    return () => {
      pane.removeEventListener("pointermove", move);
      pane.removeEventListener("pointerleave", leave);
    };
  }, [drawing, flow, pane]);
  if (!pointed) return null;
  return (
    <p aria-hidden="true" style={{ left: pointed.x + 12, top: pointed.y + 12 }} className="pointer-events-none absolute z-10 max-w-64 truncate rounded border border-line bg-surface px-2 py-0.5">
      <bdi>{visibleName(pointed.node.name, 120)}</bdi>
    </p>
  );
}
