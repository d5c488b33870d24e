/** The button with which a run is shared. */
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { aboutQuery } from "../api/queries";
import { useRun } from "../run/use-run";
import { texts } from "../texts";
import { Button } from "../ui/parts";
import { ShareDialog } from "./share-dialog";

const t = texts.shares;

export function ShareButton({ runId }: { runId: string }): ReactNode {
  const { data: about } = useQuery({ ...aboutQuery, enabled: false });
  const isRefused = useRun((state) => state.header?.status === "refused"); // it never began: there is nothing to share
  const [isOpen, setOpen] = useState(false);
  const mayShare = about?.may?.includes("share") ?? false;
  if (isRefused) return null;
  return (
    <>
      <Button disabled={!mayShare} title={mayShare ? undefined : t.notAllowed} onClick={() => setOpen(true)}>
        {t.button}
      </Button>
      {isOpen ? <ShareDialog runId={runId} onClose={() => setOpen(false)} /> : null}
    </>
  );
}
