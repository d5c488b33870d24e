/** What is read only once it comes into view. */
import { useEffect, useState, type RefObject } from "react";

const MARGIN = "400px";

/** Whether an element is or was in view. */
export function useIsSeen(place: RefObject<HTMLElement | null>): boolean {
  const [isSeen, setSeen] = useState(false);
  useEffect(() => {
    const element = place.current;
    if (isSeen || !element) return;
    const observer = new IntersectionObserver((entries) => entries.some((each) => each.isIntersecting) && setSeen(true), { rootMargin: MARGIN });
    observer.observe(element);
    return () => observer.disconnect();
  }, [place, isSeen]);
  return isSeen;
}
