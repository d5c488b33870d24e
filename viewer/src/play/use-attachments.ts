/** The files of a message: each is stored as soon as it is chosen, and sent with the message. */
import { useCallback, useRef, useState } from "react";

import { uploadFile } from "../api/runs";
import { texts } from "../texts";

export interface Attachment {
  id: number;
  name: string;
  size: number;
  /** What the server has stored; null while it is on its way. */
  descriptor: unknown;
}

export interface Attachments {
  files: readonly Attachment[];
  isUploading: boolean;
  error: string | null;
  add: (files: readonly File[]) => void;
  remove: (id: number) => void;
  clear: () => void;
  /** Store a file for a field of a form. */
  upload: (file: File) => Promise<unknown>;
}

export function useAttachments(agentId: string): Attachments {
  const [files, setFiles] = useState<readonly Attachment[]>([]);
  const [error, setError] = useState<string | null>(null);
  const nextId = useRef(0);

  const remove = useCallback((id: number) => setFiles((known) => known.filter((each) => each.id !== id)), []);
  const add = useCallback(
    (chosen: readonly File[]): void => {
      setError(null);
      for (const file of chosen) {
        const id = nextId.current++;
        setFiles((known) => [...known, { id, name: file.name, size: file.size, descriptor: null }]);
        uploadFile(agentId, file).then(
          (descriptor) => setFiles((known) => known.map((each) => (each.id === id ? { ...each, descriptor } : each))),
          (failure: unknown) => {
            remove(id);
            setError(texts.play.notUploaded(file.name, failure instanceof Error ? failure.message : String(failure)));
          },
        );
      }
    },
    [agentId, remove],
  );
  const clear = useCallback(() => setFiles([]), []);
  const upload = useCallback((file: File) => uploadFile(agentId, file), [agentId]);
  return { files, isUploading: files.some((each) => each.descriptor === null), error, add, remove, clear, upload };
}
