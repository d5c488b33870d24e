/** What views of a run need around them: its store, where its contents come from, what is selected, what can be done. */
import { useCallback, useMemo, useState, type ReactNode } from "react";

import { FilmStore } from "../store/film-store";
import type { RunStore } from "../store/run-store";
import type { RunContents } from "./contents";
import type { RunSearch } from "./run-search";
import { RunContext, type RunActions } from "./use-run";

interface Props {
  store: RunStore;
  contents: RunContents;
  actions: RunActions | null;
  search: RunSearch;
  onSearch: (change: Partial<RunSearch>, replace?: boolean) => void;
  /** What selecting a step does, where it does not stay on this view. */
  onStep?: (stepId: string | null) => void;
  children: ReactNode;
}

export function RunProvider({ store, contents, actions, search, onSearch, onStep, children }: Props): ReactNode {
  const film = useMemo(() => new FilmStore(store), [store]);
  const [isFollowing, setFollowing] = useState(false);
  const selectedStep = search.step ?? null;
  const selectInSearch = useCallback(
    (stepId: string | null) => onSearch(stepId === null ? { step: undefined, tab: undefined } : { step: stepId }),
    [onSearch],
  );
  const selectStep = onStep ?? selectInSearch;
  const context = useMemo(
    () => ({ store, film, contents, actions, search, onSearch, selectedStep, selectStep, isFollowing, setFollowing }),
    [store, film, contents, actions, search, onSearch, selectedStep, selectStep, isFollowing],
  );
  return <RunContext value={context}>{children}</RunContext>;
}
