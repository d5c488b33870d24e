/** The ids of the selected runs as a text file, one a line. */
import type { ReactNode } from "react";

import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { Button } from "../ui/parts";

const t = texts.runs;

export function ExportIds({ ids }: { ids: readonly string[] }): ReactNode {
  const announce = useAnnounce();
  const save = (): void => {
    const address = URL.createObjectURL(new Blob([`${ids.join("\n")}\n`], { type: "text/plain" }));
    const link = document.createElement("a");
    link.href = address;
    link.download = "runs.txt";
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 0);
    announce(t.exported(ids.length));
  };
  return (
    <Button onClick={save} title={t.exportHint}>
      {t.exportIds}
    </Button>
  );
}
