/** What the palette lists: entries in groups, chosen by words. */
import { texts } from "../texts";
import type { Shortcut } from "../ui/shortcuts";
import { PAGES } from "../ui/shell";
import { hasWords } from "./words";

export const GROUPS = ["ids", "actions", "pages", "runs", "agents", "conversations"] as const;

export type GroupName = (typeof GROUPS)[number];

export interface Entry {
  id: string;
  group: GroupName;
  title: string;
  hint?: string;
  /** The page that it opens. */
  href?: string;
  search?: Record<string, string>;
  /** What it does, if it opens no page. */
  open?: () => void;
}

export function matchingActions(actions: readonly Shortcut[], text: string): readonly Shortcut[] {
  return actions.filter((action) => hasWords(action.description, text.trim()));
}

export function matchingPages(text: string): Entry[] {
  return [...PAGES, { to: "/settings", name: texts.settings.title, hint: undefined }]
    .map(({ to, name, hint }): Entry => ({ id: `page-${to}`, group: "pages", title: hint ?? name, href: to }))
    .filter((entry) => hasWords(entry.title, text.trim()));
}

/** Return the groups that have entries, in their order, with the place of each entry in the whole list. */
export function groupEntries(entries: readonly Entry[]): [GroupName, { entry: Entry; index: number }[]][] {
  const placed = entries.map((entry, index) => ({ entry, index }));
  const names = [...new Set(entries.map((entry) => entry.group))];
  return names.map((name) => [name, placed.filter(({ entry }) => entry.group === name)]);
}
