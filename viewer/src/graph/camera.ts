/** The camera of the drawing: fit, zoom, its place in the address, and following running nodes. */
import { getViewportForBounds, useReactFlow, useStoreApi, type OnMove } from "@xyflow/react";
import { useCallback, useEffect, useMemo, useRef, type RefObject } from "react";

import { numbersOf } from "../run/run-search";
import { useRun, useRunContext } from "../run/use-run";
import type { Graph } from "../store/graph";
import type { RunState } from "../store/run";
import { useSize } from "../ui/use-width";
import type { Box, Layout } from "./layout";

export const FIT = { padding: 0.06, maxZoom: 1 };

export interface Camera {
  open: () => void;
  fit: () => void;
  actual: () => void;
  zoomIn: () => void;
  zoomOut: () => void;
  /** Write where the camera is into the address. */
  write: () => void;
  onMoveStart: OnMove;
  onMoveEnd: OnMove;
}

/** Return what shows a drawing whole, also while its nodes are no elements. It resolves when the camera is there. */
export function useFit(bounds: Box | null): () => Promise<boolean> {
  const { setViewport } = useReactFlow();
  const flow = useStoreApi();
  return useCallback(() => {
    const { width, height, minZoom } = flow.getState();
    if (!bounds || !width || !height) return Promise.resolve(false);
    const { x, y, w, h } = bounds;
    return setViewport(getViewportForBounds({ x, y, width: w, height: h }, width, height, minZoom, FIT.maxZoom, FIT.padding));
  }, [bounds, flow, setViewport]);
}

/** Return the camera of a drawing whose nodes lie within bounds. */
export function useCamera(pane: RefObject<HTMLElement | null>, bounds: Box | null): Camera {
  const { zoomIn, zoomOut, zoomTo, setViewport, getViewport } = useReactFlow();
  const flow = useStoreApi();
  const { search, onSearch, setFollowing } = useRunContext();
  const first = useRef(search.z); // what the address named, until the reader moves the camera
  const hasMoved = useRef(search.z !== undefined);
  const { width, height: paneHeight } = useSize(pane);

  const fitView = useFit(bounds);

  const open = useCallback((): void => {
    const [zoom, x, y] = numbersOf(first.current);
    const { width: paneWidth, height } = flow.getState();
    if (zoom === undefined || x === undefined || y === undefined) void fitView();
    else void setViewport({ zoom, x: paneWidth / 2 - x * zoom, y: height / 2 - y * zoom });
  }, [flow, fitView, setViewport]);

  useEffect(() => {
    if (!width || !paneHeight) return;
    if (first.current !== undefined) requestAnimationFrame(open); // when the drawing knows its size as well
    else if (!hasMoved.current) void fitView(); // the inspector takes room, and gives it back
  }, [width, paneHeight, fitView, open]);

  const write = useCallback((): void => {
    const { width: paneWidth, height } = flow.getState();
    const { x, y, zoom } = getViewport();
    const centre = [(paneWidth / 2 - x) / zoom, (height / 2 - y) / zoom];
    hasMoved.current = true;
    first.current = undefined;
    onSearch({ z: [Number(zoom.toFixed(4)), ...centre.map(Math.round)].join(",") }, true);
  }, [flow, getViewport, onSearch]);

  return useMemo(() => {
    const zoomed = (zoom: Promise<boolean>): void => void zoom.then(write);
    return {
      open,
      fit: () => {
        hasMoved.current = false;
        first.current = undefined;
        onSearch({ z: undefined }, true);
        void fitView();
      },
      actual: () => zoomed(zoomTo(1)),
      zoomIn: () => zoomed(zoomIn()),
      zoomOut: () => zoomed(zoomOut()),
      write,
      onMoveStart: (event) => {
        if (!event) return;
        hasMoved.current = true;
        first.current = undefined;
        setFollowing(false);
      },
      onMoveEnd: (event) => {
        if (event) write();
      },
    };
  }, [fitView, zoomIn, zoomOut, zoomTo, onSearch, setFollowing, write, open]);
}

/** Keep a running node in view, without zooming. */
export function useFollow(graph: Graph, layout: Layout, pane: RefObject<HTMLElement | null>): void {
  const { setCenter, getViewport } = useReactFlow();
  const { isFollowing } = useRunContext();
  const running = useRun(firstRunning);
  useEffect(() => {
    const box = isFollowing && running !== "" ? absoluteBox(graph, layout, running) : undefined;
    const size = pane.current?.getBoundingClientRect();
    if (!box || !size) return;
    const { x, y, zoom } = getViewport();
    const isInside = box.x * zoom + x >= 0 && (box.x + box.w) * zoom + x <= size.width && box.y * zoom + y >= 0 && (box.y + box.h) * zoom + y <= size.height;
    if (!isInside) void setCenter(box.x + box.w / 2, box.y + box.h / 2, { zoom, duration: 0 });
  }, [isFollowing, running, graph, layout, pane, setCenter, getViewport]);
}

/** Return a node that runs; "" if none does. */
function firstRunning(state: RunState): string {
  for (const [nodeId, node] of state.nodes) if (node.counts.running || node.counts.streaming) return nodeId;
  return "";
}

/** Return the box of a node on the drawing as a whole. */
export function absoluteBox(graph: Graph, layout: Layout, id: string): Box | undefined {
  const box = layout.get(id);
  const parent = graph.nodes.find((node) => node.id === id)?.parent;
  const outer = parent ? absoluteBox(graph, layout, parent) : undefined;
  return box && outer ? { ...box, x: box.x + outer.x, y: box.y + outer.y } : box;
}
