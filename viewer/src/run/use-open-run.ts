/** A run that a page follows for as long as it shows it. */
import { useEffect, useState } from "react";

import { ApiContents } from "../live/api-contents";
import { LiveRun } from "../live/live-run";
import { RunStore } from "../store/run-store";

export interface OpenRun {
  runId: string;
  store: RunStore;
  contents: ApiContents;
  live: LiveRun;
}

/** Follow a run, none if the id is null. Another id stops following the one before. */
export function useOpenRun(runId: string | null): OpenRun | null {
  const [run, setRun] = useState<OpenRun | null>(null);
  useEffect(() => {
    if (runId === null) return;
    const store = new RunStore();
    const live = new LiveRun(runId, store);
    setRun({ runId, store, contents: new ApiContents(runId), live });
    live.start();
    return () => live.stop();
  }, [runId]);
  return run?.runId === runId ? run : null;
}
