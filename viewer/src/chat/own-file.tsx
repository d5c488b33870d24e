/** A file that an answer has made: a button that downloads it, or the picture itself. */
import { useEffect, useState, type ReactNode } from "react";

import { texts } from "../texts";
import { bytes } from "../ui/format";
import { visibleName } from "../ui/visible-text";
import { pictureType } from "./own-files";
import type { ChatFile } from "./turns";

const t = texts.chat;
const FORGET_MS = 60_000;

/** Loads a file of the API by the path of its route. */
export type Download = (path: string) => Promise<Blob>;

export function FileList({ files, download }: { files: readonly ChatFile[]; download: Download }): ReactNode {
  if (!files.length) return null;
  return (
    <ul className="mt-2 flex flex-wrap gap-2">
      {files.map((file) => (
        <li key={file.path} className="max-w-full">
          <FileButton path={file.path} name={file.name} bytes={file.bytes} download={download} />
        </li>
      ))}
    </ul>
  );
}

interface OwnFileProps {
  path: string;
  label: ReactNode;
  isPicture: boolean;
  download: Download;
}

/** A file in the text of an answer. */
export function OwnFile({ path, label, isPicture, download }: OwnFileProps): ReactNode {
  const name = typeof label === "string" && label ? label : (path.split("/").findLast((part) => part.includes(".")) ?? "file");
  const type = pictureType(path);
  if (isPicture && type !== null) return <Picture path={path} type={type} name={name} download={download} />;
  return <FileButton path={path} name={name} bytes={null} download={download} />;
}

interface FileButtonProps {
  path: string;
  name: string;
  bytes: number | null;
  download: Download;
}

function FileButton({ path, name, bytes: size, download }: FileButtonProps): ReactNode {
  const [state, setState] = useState<"idle" | "busy" | "failed">("idle");
  const shown = visibleName(name, 120);
  const save = async (): Promise<void> => {
    setState("busy");
    try {
      const address = URL.createObjectURL(await download(path));
      const link = document.createElement("a");
      link.href = address;
      link.download = shown;
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), FORGET_MS);
      setState("idle");
    } catch {
      setState("failed");
    }
  };
  return (
    <>
      <button
        type="button"
        aria-label={t.download(shown)}
        disabled={state === "busy"}
        onClick={() => void save()}
        className="inline-flex min-h-7 max-w-full items-center gap-1.5 rounded border border-line-strong bg-surface px-2 text-sm hover:bg-raised"
      >
        <span aria-hidden="true">⤓</span>
        <bdi className="min-w-0 truncate">{shown}</bdi>
        {size === null ? null : <span className="shrink-0 text-ink-2">{bytes(size)}</span>}
      </button>
      {state === "failed" ? (
        <span role="alert" className="ml-1 text-sm text-red">
          {t.fileFailed}
        </span>
      ) : null}
    </>
  );
}

function Picture({ path, type, name, download }: { path: string; type: string; name: string; download: Download }): ReactNode {
  const [address, setAddress] = useState<string | null>(null);
  const [hasFailed, setFailed] = useState(false);
  useEffect(() => {
    let isCurrent = true;
    let made: string | null = null;
    download(path).then(
      (data) => {
        if (!isCurrent) return;
        made = URL.createObjectURL(new Blob([data], { type })); // shown as a picture only
        setAddress(made);
      },
      () => isCurrent && setFailed(true),
    );
    return () => {
      isCurrent = false;
      if (made !== null) URL.revokeObjectURL(made);
    };
  }, [path, type, download]);
  if (hasFailed || address === null) return <FileButton path={path} name={name} bytes={null} download={download} />;
  return <img src={address} alt={visibleName(name, 200)} className="max-h-96 max-w-full rounded" onError={() => setFailed(true)} />;
}
