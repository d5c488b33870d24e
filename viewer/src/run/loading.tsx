/** What is loaded when it is shown: until it is there, and if it cannot be loaded. */
import type { ReactNode } from "react";

import { texts } from "../texts";
import { Empty } from "../ui/parts";
import { visibleText } from "../ui/visible-text";
import type { Loaded } from "./use-run";

export function Loading<T>({ loaded, children }: { loaded: Loaded<T>; children: (value: T) => ReactNode }): ReactNode {
  if (loaded.at === "loading") return <Empty>{texts.inspector.loading}</Empty>;
  if (loaded.at === "failed") {
    return (
      <p role="alert" className="text-red">
        {visibleText(loaded.error)}
      </p>
    );
  }
  return children(loaded.value);
}
