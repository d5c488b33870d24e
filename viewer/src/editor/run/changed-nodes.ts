/** The nodes that were changed since the run that is shown was started. */
import { createContext } from "react";

export const NO_NODES: ReadonlySet<string> = new Set();
export const ChangedNodesContext = createContext<ReadonlySet<string>>(NO_NODES);
