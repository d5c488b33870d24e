/** The sign of a run that repeats another: ↻ of a rerun, ⑂ of a fork, which many fonts lack and is drawn. */
import type { ReactNode } from "react";

export function CopyMark({ kind }: { kind: string }): ReactNode {
  if (kind === "rerun") return <span aria-hidden="true">↻</span>;
  if (kind !== "fork") return null;
  return (
    <span aria-hidden="true">
      <span className="sr-only">⑂</span>
      <svg viewBox="0 0 16 16" width="12" height="12" fill="none" stroke="currentColor" strokeWidth="1.5" className="inline-block align-[-1px]">
        <path d="M8 15V9M8 9C4 9 3.5 6 3.500 2M8 9C12 9 12.500 6 12.500 2" />
      </svg>
    </span>
  );
}
