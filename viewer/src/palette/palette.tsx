/** The command palette: actions of the page, pages, and what the text finds among runs, agents and conversations. */
import { useRouter } from "@tanstack/react-router";
import { useEffect, useId, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from "react";

import { texts } from "../texts";
import { useReturnedFocus } from "../ui/returned-focus";
import { Dialog } from "../ui/dialog";
import { listShortcuts, type Shortcut } from "../ui/shortcuts";
import { keyName } from "./key-help";
import { groupEntries, matchingActions, matchingPages, type Entry } from "./entries";
import { useFound } from "./use-found";

const t = texts.palette;
const OWN_KEYS = new Set(["Mod+k"]);

export function Palette({ onClose }: { onClose: () => void }): ReactNode {
  const router = useRouter();
  const id = useId();
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const [isPasted, setPasted] = useState(false);
  const giveFocusBack = useReturnedFocus();
  // the keys of the page, as they were when the palette opened
  const [actions] = useState(() => actionsOf(listShortcuts()));
  const found = useFound(text);

  const entries = useMemo((): Entry[] => {
    const own = matchingActions(actions, text).map(
      (each): Entry => ({ id: `key-${each.key}`, group: "actions", title: each.description, hint: keyName(each.key), ...(each.action ? { open: each.action } : {}) }),
    );
    return [...own, ...matchingPages(text), ...found.entries];
  }, [actions, text, found.entries]);
  const place = Math.min(chosen, Math.max(0, entries.length - 1));

  const open = (entry: Entry): void => {
    onClose();
    if (entry.href !== undefined) {
      void router.navigate({ to: entry.href, ...(entry.search ? { search: entry.search } : {}) });
      return;
    }
    giveFocusBack();
    // the action may look at what has the focus, so it comes after the dialog has given it back
    setTimeout(() => entry.open?.(), 0);
  };

  const pasted = isPasted && !found.isSearching ? found.entries.find((entry) => entry.group === "ids") : undefined;
  const latestOpen = useRef(open);
  useEffect(() => {
    latestOpen.current = open;
  });
  useEffect(() => {
    if (pasted) latestOpen.current(pasted);
  }, [pasted]);

  const onKeyDown = (event: KeyboardEvent): void => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move !== undefined && entries.length) {
      event.preventDefault();
      const next = (place + move + entries.length) % entries.length;
      setChosen(next);
      document.getElementById(`${id}-${next}`)?.scrollIntoView({ block: "nearest" });
    }
    const entry = entries[place];
    if (event.key === "Enter" && entry && !event.nativeEvent.isComposing) {
      event.preventDefault();
      open(entry);
    }
  };

  return (
    <Dialog title={t.title} onClose={onClose}>
      <input
        autoFocus
        role="combobox"
        aria-label={t.title}
        aria-expanded={entries.length > 0}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        {...(entries.length ? { "aria-activedescendant": `${id}-${place}` } : {})}
        value={text}
        maxLength={200}
        placeholder={t.placeholder}
        spellCheck={false}
        autoComplete="off"
        onKeyDown={onKeyDown}
        onPaste={() => setPasted(true)}
        onChange={(event) => {
          setText(event.target.value);
          setChosen(0);
          if (!(event.nativeEvent instanceof InputEvent) || event.nativeEvent.inputType !== "insertFromPaste") setPasted(false);
        }}
        className="min-h-9 w-full rounded border border-line-strong bg-surface px-3 text-sm placeholder:text-ink-2"
      />
      <div id={`${id}-list`} role="listbox" aria-label={t.results} className="mt-2 max-h-[50dvh] min-h-32 overflow-auto">
        {groupEntries(entries).map(([group, members]) => (
          <div key={group} role="group" aria-labelledby={`${id}-${group}`}>
            <p id={`${id}-${group}`} role="presentation" className="px-2 pt-2 pb-0.5 text-xs text-ink-2">
              {t.groups[group]}
            </p>
            {members.map(({ entry, index }) => (
              <div
                key={entry.id}
                id={`${id}-${index}`}
                role="option"
                aria-selected={index === place}
                onClick={() => open(entry)}
                onPointerMove={() => (index === place ? undefined : setChosen(index))}
                className="flex min-h-8 cursor-pointer items-center gap-3 rounded px-2 aria-selected:bg-accent-soft"
              >
                <span className="min-w-0 flex-1 truncate">
                  <bdi>{entry.title}</bdi>
                </span>
                {entry.hint ? (
                  <span className={`max-w-2/5 truncate text-xs text-ink-2 ${entry.group === "actions" ? "rounded border border-line-strong px-1.5 font-mono" : ""}`}>
                    <bdi>{entry.hint}</bdi>
                  </span>
                ) : null}
              </div>
            ))}
          </div>
        ))}
      </div>
      <p role="status" className="mt-2 flex flex-wrap justify-between gap-x-4 text-xs text-ink-2">
        <span className={found.error === null ? "" : "text-red"}>{statusText(found, entries.length)}</span>
        <span>{t.keys}</span>
      </p>
    </Dialog>
  );
}

/** Return what can be chosen: keys that are answered elsewhere are not, and an action with two keys is there once. */
function actionsOf(shortcuts: readonly Shortcut[]): readonly Shortcut[] {
  const own = shortcuts.filter((each) => each.action !== null && !OWN_KEYS.has(each.key));
  return own.filter((each, place) => own.findIndex((other) => other.description === each.description) === place);
}

function statusText(found: ReturnType<typeof useFound>, count: number): string {
  if (found.error !== null) return t.failed + found.error;
  if (found.isSearching) return t.searching;
  if (found.isUnknownId) return t.unknownId;
  return count ? t.count(count) : t.none;
}
