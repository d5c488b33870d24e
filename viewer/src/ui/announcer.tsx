/** The live region: what actions did, for screen readers. */
import { createContext, use, useCallback, useMemo, useState, type ReactNode } from "react";

const Announce = createContext<(text: string) => void>(() => undefined);

export function Announcer({ children }: { children: ReactNode }): ReactNode {
  const [text, setText] = useState("");
  const announce = useCallback((said: string) => setText(said), []);
  return useMemo(
    () => (
      <Announce value={announce}>
        {children}
        <div role="status" aria-live="polite" className="sr-only">
          {text}
        </div>
      </Announce>
    ),
    [announce, children, text],
  );
}

export function useAnnounce(): (text: string) => void {
  return use(Announce);
}
