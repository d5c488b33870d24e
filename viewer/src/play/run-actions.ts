/** What can be done with the run of a turn. */
import { resumeRun, uploadFile } from "../api/runs";
import type { OpenRun } from "../run/use-open-run";
import type { RunActions } from "../run/use-run";

export function runActions({ live, runId }: OpenRun, agentId: string, showTalk: () => void): RunActions {
  return {
    answer: async (answers, key) => {
      try {
        await resumeRun(runId, answers, key);
      } finally {
        await live.refresh();
      }
    },
    upload: (file) => uploadFile(agentId, file),
    showTalk,
    loadAllRows: () => live.loadAllRows(),
    loadItem: (entry, item) => live.loadItem(entry, item),
  };
}
