/** The time of this computer, for ages in lists whose replies have no time of the server. */
import { useEffect, useState } from "react";

const TICK_MS = 5000;

export function useNow(): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return now;
}
