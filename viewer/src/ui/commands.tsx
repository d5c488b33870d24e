/** Commands to copy, each with what it does. */
import type { ReactNode } from "react";

import { texts } from "../texts";
import { CopyButton } from "./parts";

export function Commands({ commands }: { commands: readonly (readonly [what: string, command: string])[] }): ReactNode {
  return (
    <dl>
      {commands.map(([what, command]) => (
        <div key={what} className="mb-1 flex flex-wrap items-center gap-x-3">
          <dt className="w-32 text-ink-2">{what}</dt>
          <dd className="flex min-w-0 flex-1 basis-64 items-center gap-1">
            <code className="min-w-0 flex-1 rounded bg-panel px-2 py-1 font-mono text-xs break-words">
              {command}
            </code>
            <CopyButton text={() => command} label={`${texts.copy}: ${what}`} />
          </dd>
        </div>
      ))}
    </dl>
  );
}
