/** Audio of an answer, loaded when someone wants to hear it. */
import { useEffect, useState, type ReactNode } from "react";

import { texts } from "../texts";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import type { Download } from "./files";

const t = texts.answer;

interface Props {
  /** The files by their routes, or the audio itself, played as one: an answer that was read aloud has one for each sentence. */
  parts: readonly (string | Blob)[];
  type: string;
  name: string;
  download: Download;
}

export function AudioPlayer({ parts, type, name, download }: Props): ReactNode {
  const [state, setState] = useState<"idle" | "busy" | "failed">("idle");
  const [address, setAddress] = useState<string | null>(null);
  useEffect(() => () => (address === null ? undefined : URL.revokeObjectURL(address)), [address]);
  const shown = visibleName(name, 120);
  const load = async (): Promise<void> => {
    setState("busy");
    try {
      const loaded = await Promise.all(parts.map((part) => (typeof part === "string" ? download(part) : Promise.resolve(part))));
      setAddress(URL.createObjectURL(new Blob(loaded, { type })));
    } catch {
      setState("failed");
    }
  };
  if (address !== null && state !== "failed") {
    return <audio controls autoPlay src={address} aria-label={shown} className="h-10 max-w-full" onError={() => setState("failed")} />;
  }
  return (
    <span className="inline-flex flex-wrap items-center gap-2">
      <Button disabled={state === "busy"} aria-label={t.play(shown)} onClick={() => void load()}>
        <span aria-hidden="true">▷</span> {t.playAudio}
      </Button>
      {state === "failed" ? (
        <span role="alert" className="text-sm text-red">
          {t.audioFailed}
        </span>
      ) : null}
    </span>
  );
}
