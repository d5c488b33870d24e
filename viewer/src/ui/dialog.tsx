/** A question with two answers, as the browser's own modal dialog: it holds the focus and closes with Escape. */
import { useEffect, useId, useRef, type ReactNode } from "react";

import { Button } from "./parts";

interface Props {
  title: string;
  text: string;
  confirm: string;
  refuse: string;
  isBusy: boolean;
  error: string | null;
  onConfirm: () => void;
  onClose: () => void;
}

export function ConfirmDialog({ title, text, confirm, refuse, isBusy, error, onConfirm, onClose }: Props): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      className="m-auto max-w-md rounded-lg border border-line-strong bg-surface p-5 text-ink backdrop:bg-black/50"
    >
      <h2 id={id} className="mb-2 text-base font-semibold">
        {title}
      </h2>
      <p className="mb-4">{text}</p>
      {error === null ? null : (
        <p role="alert" data-tone="red" className="mb-3 text-tone">
          {error}
        </p>
      )}
      <div className="flex justify-end gap-2">
        <Button onClick={onClose} className="px-3! py-1!">
          {refuse}
        </Button>
        <Button onClick={onConfirm} disabled={isBusy} className="border-red! px-3! py-1! font-medium text-red!">
          {confirm}
        </Button>
      </div>
    </dialog>
  );
}
