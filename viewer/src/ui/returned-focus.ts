/** The focus goes back to where it was before a dialog without a button of its own. */
import { useCallback, useEffect, useState } from "react";

/** Call it in what opens the dialog; return a function that gives the focus back now. */
export function useReturnedFocus(): () => void {
  const [before] = useState(() => document.activeElement);
  const giveBack = useCallback(() => {
    if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
  }, [before]);
  useEffect(
    () => () => {
      // after the dialog has given up the focus, and only if nothing else has it
      setTimeout(() => {
        if (document.activeElement === document.body) giveBack();
      }, 0);
    },
    [giveBack],
  );
  return giveBack;
}
