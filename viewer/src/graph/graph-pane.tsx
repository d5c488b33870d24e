/** The graph of a run: the author's drawing with the states of its nodes, or the same as a list. */
import { useEffect, useState, type ReactNode } from "react";

import { useRun, useRunContext } from "../run/use-run";
import type { Graph } from "../store/graph";
import { texts } from "../texts";
import { Button, Empty } from "../ui/parts";
import { useShortcut } from "../ui/shortcuts";
import { Drawing } from "./drawing";
import { computedLayout, drawnLayout, type Layout } from "./layout";
import { NodeList } from "./node-list";
import { OverlayChoice, OverlayProvider } from "./overlay";

const t = texts.graph;

export default function GraphPane(): ReactNode {
  const graph = useRun((state) => state.graph);
  const { search, onSearch } = useRunContext();
  const isList = search.list === "1";
  const layout = useLayout(graph);
  const toggle = (): void => onSearch({ list: isList ? undefined : "1" });
  useShortcut("n", texts.camera.list, toggle);
  if (!graph?.nodes.length) return <Empty>{t.none}</Empty>;
  return (
    <div className="relative flex min-h-0 flex-1 flex-col">
      <div className="absolute top-2 left-2 z-10 flex flex-wrap items-center gap-2">
        <Button aria-pressed={isList} onClick={toggle}>
          {t.list}
        </Button>
        {isList ? null : <OverlayChoice />}
        {graph.drawn || isList ? null : <span className="rounded bg-surface/90 px-1 text-ink-2">{t.laidOut}</span>}
      </div>
      {isList ? (
        <NodeList graph={graph} />
      ) : layout ? (
        <OverlayProvider>
          <Drawing graph={graph} layout={layout} />
        </OverlayProvider>
      ) : (
        <Empty>{t.layingOut}</Empty>
      )}
    </div>
  );
}

/** Return where the nodes lie; null until it is computed. */
export function useLayout(graph: Graph | null): Layout | null {
  const [computed, setComputed] = useState<{ graph: Graph; layout: Layout } | null>(null);
  useEffect(() => {
    if (!graph || graph.drawn) return;
    let isCurrent = true;
    void computedLayout(graph).then((layout) => isCurrent && setComputed({ graph, layout }));
    return () => {
      isCurrent = false;
    };
  }, [graph]);
  const [drawn] = useStateFor(graph, () => (graph?.drawn ? drawnLayout(graph) : null));
  return drawn ?? (computed?.graph === graph ? (computed?.layout ?? null) : null);
}

/** Compute a value once for a key. */
function useStateFor<K, T>(key: K, compute: () => T): [T] {
  const [kept, setKept] = useState<{ key: K; value: T }>(() => ({ key, value: compute() }));
  if (kept.key === key) return [kept.value];
  const fresh = { key, value: compute() };
  setKept(fresh);
  return [fresh.value];
}
