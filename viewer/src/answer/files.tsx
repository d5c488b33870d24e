/** Files that people sent and that nodes made: a button that downloads one, the picture itself, a player for audio. */
import { useEffect, useState, type ReactNode } from "react";

import { audioType, pictureType } from "../api/own-files";
import type { ServerFile } from "../store/run";
import { texts } from "../texts";
import { bytes } from "../ui/format";
import { visibleName } from "../ui/visible-text";
import { AudioPlayer } from "./audio-player";

const t = texts.answer;
const FORGET_MS = 60_000;
const MAX_PICTURE_BYTES = 20 * 1024 * 1024; // a larger one is only downloaded

/** Loads a file of the API by the path of its route. */
export type Download = (path: string) => Promise<Blob>;

interface FileListProps {
  files: readonly ServerFile[];
  /** Undefined where the files cannot be read: only their names are shown. */
  download: Download | undefined;
}

export function FileList({ files, download }: FileListProps): ReactNode {
  if (!files.length) return null;
  return (
    <ul className="mt-2 flex flex-wrap items-end gap-2" aria-label={t.files}>
      {files.map((file) => (
        <li key={file.path} className="max-w-full">
          {download ? <FileEntry file={file} download={download} /> : <FileName file={file} />}
        </li>
      ))}
    </ul>
  );
}

function FileEntry({ file: { path, name, bytes }, download }: { file: ServerFile; download: Download }): ReactNode {
  const picture = pictureType(name);
  const audio = audioType(name);
  return (
    <div className="flex flex-col items-start gap-1">
      {picture !== null && (bytes ?? 0) <= MAX_PICTURE_BYTES ? <Picture path={path} type={picture} name={name} download={download} isSmall /> : null}
      {audio === null ? null : <AudioPlayer parts={[path]} type={audio} name={name} download={download} />}
      <FileButton path={path} name={name} bytes={bytes} download={download} />
    </div>
  );
}

function FileName({ file: { name, bytes: size } }: { file: ServerFile }): ReactNode {
  return (
    <span className="text-sm">
      <span aria-hidden="true">▤ </span>
      <bdi>{visibleName(name, 120)}</bdi>
      {size === null ? null : <span className="text-ink-2"> {bytes(size)}</span>}
    </span>
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

interface PictureProps {
  path: string;
  type: string;
  name: string;
  download: Download;
  /** A thumbnail, beside a button for the file. */
  isSmall?: boolean;
}

function Picture({ path, type, name, download, isSmall = false }: PictureProps): ReactNode {
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
  if (isSmall && (hasFailed || address === null)) return null;
  if (hasFailed || address === null) return <FileButton path={path} name={name} bytes={null} download={download} />;
  return <img src={address} alt={visibleName(name, 200)} className={isSmall ? "max-h-40 max-w-full rounded border border-line" : "max-h-96 max-w-full rounded"} onError={() => setFailed(true)} />;
}
