/** How wide the window or an element is, for views that show less in less room. */
import { useLayoutEffect, useState, useSyncExternalStore, type RefObject } from "react";

/** Return whether the window is narrower than so many pixels. */
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

/** Return the width of the window in pixels. */
export function useWindowWidth(): number {
  return useSyncExternalStore(
    (listener) => {
      addEventListener("resize", listener);
      return () => removeEventListener("resize", listener);
    },
    () => innerWidth,
  );
}

/** Return the width of an element in pixels; 0 before it is known. */
export function useWidth(ref: RefObject<HTMLElement | null>): number {
  return useSize(ref).width;
}

/** Return the size of an element in pixels; 0 before it is known. */
export function useSize(ref: RefObject<HTMLElement | null>): { width: number; height: number } {
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return;
    const measure = (): void => {
      const { clientWidth: width, clientHeight: height } = element;
      setSize((known) => (known.width === width && known.height === height ? known : { width, height }));
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, [ref]);
  return size;
}
