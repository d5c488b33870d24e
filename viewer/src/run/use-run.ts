/** Reading the state of a run in views: a view is rendered again only when what it selects has changed. */
import { createContext, use, useEffect, useMemo, useState, useSyncExternalStore } from "react";

import type { Answers } from "../api/runs";
import type { FilmStore, ReadableStore } from "../store/film-store";
import type { RunState } from "../store/run";
import { buildTree, type StepTree } from "../store/step-tree";
import type { RunContents } from "./contents";
import type { RunSearch } from "./run-search";

/** What can be done with a run of a server; a run out of a file has no actions. */
export interface RunActions {
  answer(answers: Answers, idempotencyKey: string): Promise<void>;
  upload(file: File): Promise<unknown>;
  showTalk(): void;
  /** Load the rows of a run that has too many to load them unasked. */
  loadAllRows?(): Promise<void>;
  /** Load the rows of one item, by the entry of its container. */
  loadItem?(entry: string, item: number): Promise<void>;
}

interface RunContext {
  /** What views read: the run as it is, or in the graph as it was at the time of the film. */
  store: ReadableStore;
  film: FilmStore;
  search: RunSearch;
  onSearch: (change: Partial<RunSearch>, replace?: boolean) => void;
  /** Whether running nodes and the end of lists are kept in view. */
  isFollowing: boolean;
  setFollowing: (isFollowing: boolean) => void;
  contents: RunContents;
  actions: RunActions | null;
  selectedStep: string | null;
  selectStep: (stepId: string | null) => void;
}

export const RunContext = createContext<RunContext | null>(null);

export function useRunContext(): RunContext {
  const context = use(RunContext);
  if (!context) throw new Error("a view of a run is outside of RunContext");
  return context;
}

/** Return a part of the state. The selector must return the same value for the same part. */
export function useRun<T>(select: (state: RunState) => T): T {
  const { store } = useRunContext();
  return useSyncExternalStore(store.subscribe, () => select(store.getState()));
}

const whole = (state: RunState): RunState => state;

export function useRunState(): RunState {
  return useRun(whole);
}

export function useStepTree(): StepTree {
  const state = useRunState();
  return useMemo(() => buildTree(state), [state]);
}

/** Return the names of all nodes by id. */
export function useNodeNames(): ReadonlyMap<string, string> {
  const graph = useRun((state) => state.graph);
  return useMemo(() => new Map(graph?.nodes.map((node) => [node.id, node.name])), [graph]);
}

export type Loaded<T> = { at: "loading" } | { at: "loaded"; value: T } | { at: "failed"; error: string };

/** Load something for a key; a result that comes late for an earlier key is dropped. */
export function useLoaded<T>(key: string, load: (key: string) => Promise<T>): Loaded<T> {
  const [loaded, setLoaded] = useState<{ key: string; result: Loaded<T> } | null>(null);
  useEffect(() => {
    let isCurrent = true;
    load(key).then(
      (value) => isCurrent && setLoaded({ key, result: { at: "loaded", value } }),
      (error: unknown) => isCurrent && setLoaded({ key, result: { at: "failed", error: error instanceof Error ? error.message : String(error) } }),
    );
    return () => {
      isCurrent = false;
    };
  }, [key, load]);
  return loaded?.key === key ? loaded.result : { at: "loading" };
}
