/** Dialogs: they hold the focus, close with Escape, and give the focus back. */
import * as Radix from "@radix-ui/react-dialog";
import type { ReactNode } from "react";

import { texts } from "../texts";
import { Button } from "./parts";
import { useReturnedFocus } from "./returned-focus";
import { visibleName } from "./visible-text";

interface DialogProps {
  title: string;
  /** What the dialog is about, in a sentence; read aloud when it opens. */
  description?: string;
  /** `small` for a question, `medium` for a form, `large` for several columns. */
  size?: "small" | "medium" | "large";
  onClose: () => void;
  children: ReactNode;
}

const WIDTHS = { small: "max-w-md", medium: "max-w-2xl", large: "max-w-[1300px]" } as const;

export function Dialog({ title, description, size = "medium", onClose, children }: DialogProps): ReactNode {
  useReturnedFocus(); // Radix gives it back to a trigger, which these dialogs have not
  return (
    <Radix.Root open onOpenChange={(isOpen) => (isOpen ? undefined : onClose())}>
      <Radix.Portal>
        <Radix.Overlay className="fixed inset-0 z-40 bg-black/50" />
        <Radix.Content
          {...(description === undefined ? { "aria-describedby": undefined } : {})}
          className={`fixed top-1/2 left-1/2 z-50 flex max-h-[92dvh] w-[calc(100%-1.5rem)] -translate-x-1/2 -translate-y-1/2 flex-col overflow-auto rounded-lg border border-line-strong bg-surface p-5 text-ink ${WIDTHS[size]}`}
        >
          <div className="mb-2 flex items-start gap-2">
            <Radix.Title className="min-w-0 flex-1 text-base font-semibold">{title}</Radix.Title>
            {size === "small" ? null : (
              <Radix.Close asChild>
                <Button aria-label={texts.close}>✕</Button>
              </Radix.Close>
            )}
          </div>
          {description === undefined ? null : <Radix.Description className="mb-3">{description}</Radix.Description>}
          {children}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

interface ConfirmProps {
  title: string;
  text: string;
  confirm: string;
  refuse: string;
  isBusy: boolean;
  error: string | null;
  onConfirm: () => void;
  onClose: () => void;
}

/** A question with two answers. */
export function ConfirmDialog({ title, text, confirm, refuse, isBusy, error, onConfirm, onClose }: ConfirmProps): ReactNode {
  return (
    <Dialog title={title} description={text} size="small" onClose={onClose}>
      {error === null ? null : (
        <p role="alert" data-tone="red" className="mb-3 text-tone">
          {visibleName(error, 500)}
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
    </Dialog>
  );
}
