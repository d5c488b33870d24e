/** Icons of components, drawn: fonts of many systems lack the characters that could stand for them. */
import type { ReactNode } from "react";

const WRENCH = "M13.300 4.800l-2.100 2.100-2.100-2.100 2.100-2.100a3.400 3.400 0 0 0-4.300 4.400L2.600 11.400l2 2 4.300-4.300a3.400 3.400 0 0 0 4.400-4.300z";
const SPARK = "M8 2l1.500 4.500L14 8l-4.500 1.500L8 14l-1.500-4.500L2 8l4.500-1.500z";
const LINES = "M6 4h7.500M6 8h7.500M6 12h7.500M2.800 4h.6M2.800 8h.6M2.800 12h.6";
const BUBBLE = "M2.500 3.500h11v7h-6l-3 2.800v-2.800h-2z";
const LENS = "M7 3a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM10 10l3.500 3.500";
const CHEVRON = "M6 4l4 4-4 4";
const TABLE = "M2.500 3h11v10h-11z";

/** Paths on a square of 16 by 16. */
const PATHS: Readonly<Record<string, string>> = {
  Agent: "M8 2.500a2.500 2.500 0 1 1 0 5 2.500 2.500 0 0 1 0-5zM3 13.500c.5-3 2.500-4 5-4s4.500 1 5 4",
  Answer: BUBBLE,
  Begin: "M5 3l8 5-8 5z",
  Browser: `${TABLE}M2.500 6h11`,
  Categorize: "M2.500 8h11M5.500 8L9 3.500h4.500M5.500 8L9 12.500h4.500",
  CodeExec: "M5.500 4.500L2 8l3.500 3.500M10.500 4.500L14 8l-3.500 3.500",
  DataOperations: `${TABLE}M2.500 6.500h11M6.500 3v10`,
  DeepResearch: `${LENS}M7 5v4M5 7h4`,
  DocGenerator: "M4 2h5.500l3 3v9H4zM6 8h4.500M6 11h4.500",
  Email: "M2.500 4h11v8h-11zM2.500 4.500L8 9l5.500-4.500",
  ExcelProcessor: `${TABLE}M2.500 8h11M8 3v10`,
  ExeSQL: "M3 4.500c0-2.500 10-2.500 10 0v7c0 2.500-10 2.500-10 0zM3 4.500c0 2.500 10 2.500 10 0",
  ExitLoop: "M9 3H3v10h6M6.500 8h7M11 5.500L13.500 8 11 10.500",
  Invoke: "M8 2.500a5.500 5.500 0 1 1 0 11 5.500 5.500 0 0 1 0-11zM2.500 8h11M8 2.500c-3 3-3 8 0 11 3-3 3-8 0-11z",
  Iteration: "M13 8a5 5 0 1 1-1.500-3.500L13 6M13 2.500V6H9.500",
  IterationItem: CHEVRON,
  LLM: SPARK,
  ListOperations: LINES,
  Loop: "M3 6h10l-2.500-2.500M13 10H3l2.500 2.500",
  LoopItem: CHEVRON,
  Message: BUBBLE,
  Note: "M3 13l.7-3 6.800-6.800 2.300 2.300L6 12.300z",
  Retrieval: LENS,
  StringTransform: "M3.500 6V3.500h9V6M8 3.500V13M6 13h4",
  Switch: "M2.500 8h3l4-4.500h4M5.500 8l4 4.500h4M11.500 1.500l2 2-2 2M11.500 10.500l2 2-2 2",
  Tool: WRENCH,
  UserFillUp: "M3 2.500h10v11H3zM5.500 6h5M5.500 9h3",
  VariableAggregator: "M2.500 3.500h2L8 8h5.500M2.500 12.500h2L8 8M11.500 6l2 2-2 2",
  VariableAssigner: "M3 6h10M3 10h10",
};
const GROUP_PATHS: Readonly<Record<string, string>> = { flow: "M2.500 8h11M9.500 4l4 4-4 4", model: SPARK, data: LINES, tools: WRENCH };
const OTHER = "M3 3h10v10H3z";

/** The icon of a component; of one without its own, that of its group. */
export function ComponentIcon({ component, group = "" }: { component: string; group?: string }): ReactNode {
  return (
    <svg aria-hidden="true" viewBox="0 0 16 16" className="size-[1.15em]" fill="none" stroke="currentColor" strokeWidth="1.4" strokeLinecap="round" strokeLinejoin="round">
      <path d={PATHS[component] ?? GROUP_PATHS[group] ?? OTHER} />
    </svg>
  );
}
