/** The focus is never lost: it goes back to where it was before a dialog, and to the content when what had it goes away. */
import { useCallback, useEffect, useState } from "react";

/** Call it in what opens the dialog, or in the dialog; return a function that gives the focus back now. */
export function useReturnedFocus(): () => void {
  const [before] = useState(findOpener);
  const giveBack = useCallback(() => {
    if (before instanceof HTMLElement && before.isConnected && before !== document.body) before.focus({ preventScroll: true });
    else focusContent();
  }, [before]);
  useEffect(() => () => whenLost(giveBack), [giveBack]);
  return giveBack;
}

/** Return what has the focus; for an item of a menu, which goes away, the button of the menu. */
function findOpener(): Element | null {
  const focused = document.activeElement;
  const button = focused?.closest("[role=menu]")?.getAttribute("aria-labelledby");
  return button ? document.getElementById(button) : focused;
}

/** Call it in what may go away while it has the focus, such as a form that was answered: the content gets the focus then. */
export function useFocusOfContent(): void {
  useEffect(() => () => whenLost(focusContent), []);
}

/** A part of a component that may go away while it has the focus. */
export function FocusOfContent(): null {
  useFocusOfContent();
  return null;
}

/** Call a function after what is there now has given up the focus, and only if nothing else has it. */
function whenLost(then: () => void): void {
  setTimeout(() => {
    if (document.activeElement === document.body) then();
  }, 0);
}

function focusContent(): void {
  document.getElementById("content")?.focus({ preventScroll: true });
}
