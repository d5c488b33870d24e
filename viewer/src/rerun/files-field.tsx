/** The files of a rerun: those of the original, or others. */
import { useId, useState, type ReactNode } from "react";

import { uploadFile } from "../api/runs";
import { isObject, textOr } from "../run-file/rows";
import { texts } from "../texts";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import type { StoredFile } from "./rerun-body";

const t = texts.rerun;

interface Props {
  agentId: string;
  /** Names of the original's files, as far as they are known. */
  names: readonly string[];
  files: "keep" | readonly StoredFile[];
  onChange: (files: "keep" | readonly StoredFile[]) => void;
}

export function FilesField({ agentId, names, files, onChange }: Props): ReactNode {
  const id = useId();
  const isKept = files === "keep";
  return (
    <fieldset>
      <legend className="font-medium">{t.files}</legend>
      <div className="flex flex-wrap gap-x-4">
        <Choice name={id} label={t.keepFiles} isChecked={isKept} onChoose={() => onChange("keep")} />
        <Choice name={id} label={t.replaceFiles} isChecked={!isKept} onChoose={() => onChange([])} />
      </div>
      {isKept ? names.length ? <p className="text-ink-2">{t.fileNames(names.map((name) => visibleName(name, 80)).join(", "))}</p> : null : (
        <OtherFiles agentId={agentId} files={files} onChange={onChange} />
      )}
    </fieldset>
  );
}

export function Choice({ name, label, isChecked, onChoose }: { name: string; label: string; isChecked: boolean; onChoose: () => void }): ReactNode {
  return (
    <label className="flex min-h-6 items-center gap-1.5">
      <input type="radio" name={name} className="size-4 shrink-0" checked={isChecked} onChange={onChoose} />
      {label}
    </label>
  );
}

function OtherFiles({ agentId, files, onChange }: { agentId: string; files: readonly StoredFile[]; onChange: (files: readonly StoredFile[]) => void }): ReactNode {
  const id = useId();
  const [note, setNote] = useState("");
  const add = async (chosen: FileList | null): Promise<void> => {
    setNote(t.uploading);
    const added: StoredFile[] = [];
    try {
      for (const file of chosen ?? []) {
        const stored = await uploadFile(agentId, file);
        added.push(...(Array.isArray(stored) ? stored : [stored]).filter(isObject));
      }
      setNote("");
    } catch (failure) {
      setNote(failure instanceof Error ? failure.message : String(failure));
    }
    onChange([...files, ...added]);
  };
  return (
    <>
      {files.length ? (
        <ul>
          {files.map((file, place) => {
            const name = visibleName(textOr(file.name, "") || textOr(file.id, String(place + 1)), 120);
            return (
              <li key={place} className="flex items-center gap-2">
                <bdi className="min-w-0 truncate">{name}</bdi>
                <Button aria-label={t.removeFile(name)} onClick={() => onChange(files.filter((each) => each !== file))}>
                  ✕
                </Button>
              </li>
            );
          })}
        </ul>
      ) : (
        <p className="text-ink-2">{t.noFiles}</p>
      )}
      <label htmlFor={id} className="mr-2">
        {t.addFiles}
      </label>
      <input id={id} type="file" multiple className="max-w-full" onChange={(event) => void add(event.target.files)} />
      <span role="status">{visibleName(note, 300)}</span>
    </>
  );
}
