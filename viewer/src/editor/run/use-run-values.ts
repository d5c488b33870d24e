/** Values of the run that is open, by the reference with which nodes read them. */
import { useEffect, useState } from "react";

import type { RunContents } from "../../run/contents";
import { useRunContext, useRunState } from "../../run/use-run";
import type { RunState } from "../../store/run";
import { isOver } from "../../store/run-status";

const MOST_NODES = 50;
const NONE: ReadonlyMap<string, unknown> = new Map();

/** The last step of a node that has ended well. */
export type LastStep = readonly [nodeId: string, stepId: string];

/** Return the outputs of a run that is over; none while it runs, since they would be read again and again. */
export function useRunValues(): ReadonlyMap<string, unknown> {
  const run = useRunState();
  const { contents } = useRunContext();
  const [loaded, setLoaded] = useState({ key: "", values: NONE });
  const key = run.header !== null && isOver(run.header.status) ? JSON.stringify(lastSteps(run)) : "[]";
  useEffect(() => {
    if (key === "[]") return;
    let isCurrent = true;
    void loadValues(JSON.parse(key) as LastStep[], contents).then((values) => isCurrent && setLoaded({ key, values }));
    return () => {
      isCurrent = false;
    };
  }, [key, contents]);
  return loaded.key === key ? loaded.values : NONE;
}

export function lastSteps(run: RunState): readonly LastStep[] {
  const found = new Map<string, string>();
  const { steps } = run;
  for (let row = 0; row < steps.count; row++) {
    const isDone = steps.text(row, "status") === "done" && steps.text(row, "outcome") !== "Failed";
    if (isDone) found.set(steps.text(row, "nodeId") ?? "", steps.id(row));
  }
  return [...found].slice(-MOST_NODES);
}

/** Return the outputs of steps by reference. */
export async function loadValues(steps: readonly LastStep[], contents: RunContents): Promise<ReadonlyMap<string, unknown>> {
  const loaded = await Promise.all(
    steps.map(async ([node, step]) => {
      try {
        const { outputs } = await contents.stepValues(step);
        return Object.entries(outputs).map(([name, value]): [string, unknown] => [`${node}@${name}`, value]);
      } catch {
        return []; // a value that cannot be read is not shown
      }
    }),
  );
  return new Map(loaded.flat());
}
