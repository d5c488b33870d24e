/** The live region, for screen readers: what actions did, and what has changed by itself. */
import { createContext, use, useCallback, useEffect, useMemo, useState, type ReactNode } from "react";

import { Spaced } from "./spaced";

const STATE_GAP_MS = 5_000;

const Announce = createContext<(text: string) => void>(() => undefined);
const AnnounceState = createContext<(about: string, text: string) => void>(() => undefined);

export function Announcer({ children }: { children: ReactNode }): ReactNode {
  const [text, setText] = useState("");
  const announce = useCallback((said: string) => setText(said), []);
  const [states] = useState(() => new Spaced(STATE_GAP_MS, setText));
  const announceState = useCallback((about: string, said: string) => states.offer(about, said), [states]);
  useEffect(() => () => states.stop(), [states]);
  return useMemo(
    () => (
      <Announce value={announce}>
        <AnnounceState value={announceState}>
          {children}
          <div role="status" aria-live="polite" className="sr-only">
            {text}
          </div>
        </AnnounceState>
      </Announce>
    ),
    [announce, announceState, children, text],
  );
}

/** Return what announces the effect of an action, at once. */
export function useAnnounce(): (text: string) => void {
  return use(Announce);
}

/** Return what announces something that changes by itself, such as the state of a run: at most once in five seconds. */
export function useAnnounceState(): (about: string, text: string) => void {
  return use(AnnounceState);
}
