/** The keys of a run's page. */
import type { ReactNode } from "react";

import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { useShortcut } from "../ui/shortcuts";
import { useRunContext } from "./use-run";

const t = texts.runKeys;

export function RunKeys(): ReactNode {
  const { store, film, search, onSearch, selectedStep, selectStep, isFollowing, setFollowing } = useRunContext();
  const announce = useAnnounce();

  const goToStep = (by: 1 | -1): void => {
    const { steps } = store.getState();
    const rows = steps.inOrder();
    const at = selectedStep === null ? -1 : rows.indexOf(steps.rowOf(selectedStep) ?? -1);
    const row = rows[at + by];
    if (row !== undefined) selectStep(steps.id(row));
  };
  const focusInspector = (): void => {
    if (selectedStep === null) goToStep(1);
    requestAnimationFrame(() => document.querySelector<HTMLElement>("aside [role=tab][data-state=active]")?.focus());
  };
  const close = (): void => {
    if (selectedStep !== null) selectStep(null);
    else if (search.items !== undefined) onSearch({ items: undefined, item: undefined, which: undefined });
    else if (search.t !== undefined) onSearch({ t: undefined });
  };
  const follow = (): void => {
    film.setTime(null);
    if (search.t !== undefined) onSearch({ t: undefined }, true);
    setFollowing(!isFollowing);
    announce(isFollowing ? t.notFollowing : t.following);
  };
  const filter = (): void => {
    if (search.view !== "log" && search.view !== "time") onSearch({ view: "time" });
    requestAnimationFrame(() => document.querySelector<HTMLElement>("[data-filter]")?.focus());
  };
  const copyLink = (): void => {
    navigator.clipboard.writeText(location.href).then(
      () => announce(t.linkCopied),
      () => announce(texts.notCopied),
    );
  };

  useShortcut("g", t.graph, () => onSearch({ view: "graph" }));
  useShortcut("t", t.time, () => onSearch({ view: "time" }));
  useShortcut("l", t.log, () => onSearch({ view: "log" }));
  useShortcut("j", t.next, () => goToStep(1));
  useShortcut("k", t.previous, () => (selectedStep === null ? onSearch({ view: "talk" }) : goToStep(-1)));
  useShortcut("Enter", t.inspector, focusInspector);
  useShortcut("Escape", t.close, close);
  useShortcut(".", t.follow, follow);
  useShortcut("/", t.filter, filter);
  useShortcut("y", t.copyLink, copyLink);
  return null;
}
