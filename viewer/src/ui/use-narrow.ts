/** Whether the window is narrower than so many pixels. */
import { useSyncExternalStore } from "react";

export function useNarrow(width: number): boolean {
  const query = matchMedia(`(max-width: ${width - 1}px)`);
  return useSyncExternalStore(
    (listener) => {
      query.addEventListener("change", listener);
      return () => query.removeEventListener("change", listener);
    },
    () => query.matches,
  );
}
