/** Replacing the draft by a document: a file or a text, which goes to the server as it is. */
import { useState, type ReactNode } from "react";

import { SendError } from "../../run/open-form";
import { texts } from "../../texts";
import { Dialog } from "../../ui/dialog";
import { bytes } from "../../ui/format";
import { Button } from "../../ui/parts";
import { useEditor } from "../editor-context";

const t = texts.editor.importing;
export const MAX_FILE_BYTES = 64 * 1024 * 1024;

/** Return the text of a file. Raises Error for one that is too large. */
export async function readFile(file: File): Promise<string> {
  if (file.size > MAX_FILE_BYTES) throw new Error(t.large(bytes(MAX_FILE_BYTES)));
  return file.text();
}

export function ImportDialog({ onClose }: { onClose: () => void }): ReactNode {
  const { session, notify } = useEditor();
  const [text, setText] = useState("");
  const [file, setFile] = useState<File | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const submit = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      const written = text.trim() ? text : file ? await readFile(file) : "";
      if (!written.trim()) throw new Error(t.empty);
      await session.importText(written);
      notify(t.done);
      onClose();
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
      setBusy(false);
    }
  };
  return (
    <Dialog title={t.title} description={t.text} onClose={onClose}>
      <form
        noValidate
        className="flex flex-col gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <label>
          <span className="block font-medium">{t.file}</span>
          <input type="file" accept=".json,application/json" onChange={(event) => setFile(event.target.files?.[0] ?? null)} className="max-w-full" />
        </label>
        <label>
          <span className="block font-medium">{t.paste}</span>
          <textarea rows={8} spellCheck={false} value={text} onChange={(event) => setText(event.target.value)} className="w-full rounded border border-line-strong bg-surface p-2 font-mono text-xs" />
        </label>
        <SendError error={error} />
        <Button type="submit" disabled={isBusy} className="self-end border-accent! bg-accent! px-3! py-1! font-medium text-surface! enabled:hover:opacity-90 disabled:opacity-60">
          {t.submit}
        </Button>
      </form>
    </Dialog>
  );
}
