/**
 * Keys of the pages: each part of a page registers its own while it is shown. Single keys do nothing in text fields,
 * dialogs and menus, and nothing at all when they are switched off (WCAG 2.1.4); combinations with Ctrl or Cmd always work,
 * but for those that a text field or dialog has itself.
 */
import { useEffect, useRef, useSyncExternalStore } from "react";

export interface Shortcut {
  /** As `KeyboardEvent.key` has it: "g", "?", "[", "Enter", "Escape"; "Mod+k" is Ctrl+K, on a Mac Cmd+K; "Mod+Shift+z". */
  key: string;
  /** What it does, in a few words: "Next step". */
  description: string;
  /** Null if the browser or the focused element answers the key: it is listed only. */
  action: (() => void) | null;
  /** Where a combination does nothing; by default it works everywhere. */
  except?: "dialogs" | "texts and dialogs";
}

const SETTING = "easel.shortcuts";
const CHANGED = "easel:shortcuts";
const TEXT_INPUTS = /^(?!button|checkbox|color|file|image|radio|range|reset|submit)/;
/** What answers Enter and Space itself. */
const INTERACTIVE = "a[href], button, summary, input, [role=treegrid], [role=listbox], [role=slider], [role=option]";
/** What holds the keyboard as long as it is open. */
const MODAL = "[role=dialog], [role=alertdialog], [role=menu]";

let registered: readonly Shortcut[] = [];
const listeners = new Set<() => void>();

/** Register a shortcut until the returned function is called. Of several with one key, the latest is used. */
export function registerShortcut(shortcut: Shortcut): () => void {
  if (!registered.length) addEventListener("keydown", onKeyDown);
  change([...registered, shortcut]);
  return () => {
    change(registered.filter((each) => each !== shortcut));
    if (!registered.length) removeEventListener("keydown", onKeyDown);
  };
}

/** Register a shortcut while a component is shown and the shortcut is enabled. */
export function useShortcut(key: string, description: string, action: Shortcut["action"], isEnabled = true, except?: Shortcut["except"]): void {
  const latest = useRef(action);
  useEffect(() => {
    latest.current = action;
  });
  const isListed = action === null;
  useEffect(() => {
    if (!isEnabled) return undefined;
    return registerShortcut({ key, description, action: isListed ? null : () => latest.current?.(), ...(except ? { except } : {}) });
  }, [key, description, isEnabled, isListed, except]);
}

/** Return the shortcuts that work now, in the order in which they were registered; one for each key. */
export function listShortcuts(): readonly Shortcut[] {
  return registered.filter((each, index) => !registered.some((other, place) => place > index && other.key === each.key));
}

/** Whether it is a key alone, which works only while such keys are on. */
export function isSingleKey({ key, action }: Shortcut): boolean {
  return action !== null && !key.startsWith("Mod+");
}

/** Return the shortcuts that work now; the component is rendered again when they change. */
export function useShortcutList(): readonly Shortcut[] {
  useSyncExternalStore(subscribe, () => registered);
  return listShortcuts();
}

export function areSingleKeysOn(): boolean {
  try {
    return localStorage.getItem(SETTING) !== "off";
  } catch {
    return true;
  }
}

/** Switch single keys on or off in this browser. */
export function setSingleKeysOn(isOn: boolean): void {
  try {
    if (isOn) localStorage.removeItem(SETTING);
    else localStorage.setItem(SETTING, "off");
  } catch {
    return; // without storage they stay on
  }
  dispatchEvent(new Event(CHANGED));
}

export function useSingleKeysOn(): boolean {
  return useSyncExternalStore((listener) => {
    addEventListener(CHANGED, listener);
    return () => removeEventListener(CHANGED, listener);
  }, areSingleKeysOn);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function change(next: readonly Shortcut[]): void {
  registered = next;
  for (const listener of listeners) listener();
}

function onKeyDown(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing) return;
  const found = registered.findLast((each) => each.key === nameOf(event));
  if (!found?.action || !isAllowed(event, found)) return;
  event.preventDefault();
  found.action();
}

/** Return the key as shortcuts name it. AltGr is how many keyboards write brackets, and no modifier here. */
function nameOf(event: KeyboardEvent): string {
  if (event.getModifierState("AltGraph")) return event.key;
  if (event.altKey) return "";
  if (!event.ctrlKey && !event.metaKey) return event.key;
  const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  return `Mod+${event.shiftKey ? "Shift+" : ""}${name}`;
}

function isAllowed(event: KeyboardEvent, { except }: Shortcut): boolean {
  const target = event.target instanceof Element ? event.target : null;
  if (except && document.querySelector(MODAL)) return false;
  if (nameOf(event).startsWith("Mod+")) return except !== "texts and dialogs" || !isTextField(target);
  if (!areSingleKeysOn() || isTextField(target) || target?.closest(MODAL)) return false;
  return !(["Enter", " "].includes(event.key) && target?.closest(INTERACTIVE));
}

export function isTextField(target: Element | null): boolean {
  if (target instanceof HTMLInputElement) return TEXT_INPUTS.test(target.type);
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement || (target instanceof HTMLElement && target.isContentEditable);
}
