/** The time of the server, for ages in lists whose replies have none. */
import { useEffect, useState } from "react";

import { serverNow } from "../api/server-clock";

const TICK_MS = 5000;

export function useNow(): number {
  const [now, setNow] = useState(serverNow);
  useEffect(() => {
    const timer = setInterval(() => setNow(serverNow()), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return now;
}
