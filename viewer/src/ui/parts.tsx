/** Small parts that every page uses: buttons, badges of states, copying. */
import { useState, type ButtonHTMLAttributes, type ReactNode } from "react";

import type { Look } from "../store/run-status";
import { texts } from "../texts";
import { useAnnounce } from "./announcer";
import { visibleName } from "./visible-text";

export function Button({ className = "", ...props }: ButtonHTMLAttributes<HTMLButtonElement>): ReactNode {
  const look =
    "inline-flex min-h-6 shrink-0 items-center whitespace-nowrap gap-1 rounded border border-line-strong bg-surface px-2 py-0.5 text-ink " +
    "enabled:hover:bg-raised disabled:text-ink-2 disabled:border-line aria-pressed:bg-accent-soft aria-pressed:border-accent";
  return <button type="button" className={`${look} ${className}`} {...props} />;
}

/** A state by icon, word, border and colour. */
export function StateBadge({ look, extra }: { look: Look; extra?: string }): ReactNode {
  return (
    <span
      data-tone={look.tone}
      data-border={look.border}
      className="inline-flex items-center gap-1 rounded bg-tone-soft px-1.5 py-px font-medium whitespace-nowrap text-tone"
    >
      <span aria-hidden="true">{look.icon}</span>
      {visibleName(look.word, 40)}
      {extra ? <span className="font-normal">· {extra}</span> : null}
    </span>
  );
}

export function CopyButton({ text, label = texts.copy }: { text: () => string | Promise<string>; label?: string }): ReactNode {
  const announce = useAnnounce();
  const [isCopied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    let copied: string;
    try {
      copied = await text();
    } catch (failure) {
      announce(failure instanceof Error ? failure.message : String(failure));
      return;
    }
    try {
      await navigator.clipboard.writeText(copied);
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
      announce(texts.copied);
    } catch {
      announce(texts.notCopied);
    }
  };
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      onClick={() => void copy()}
      className="inline-flex size-6 shrink-0 items-center justify-center rounded text-ink-2 hover:bg-raised"
    >
      {isCopied ? <span aria-hidden="true">✓</span> : <CopyIcon />}
    </button>
  );
}

function CopyIcon(): ReactNode {
  return (
    <svg aria-hidden="true" viewBox="0 0 16 16" width="13" height="13" fill="none" stroke="currentColor" strokeWidth="1.4">
      <rect x="5.500" y="5.500" width="8" height="8" rx="1.500" />
      <path d="M3 10.500h-.5v-8h8v.500" />
    </svg>
  );
}

/** What stands where there is nothing to show. */
export function Empty({ children }: { children: ReactNode }): ReactNode {
  return <p className="p-4 text-ink-2">{children}</p>;
}
