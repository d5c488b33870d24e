/** The looks of controls in dialogs and forms of agents. */
export const FIELD = "min-h-8 w-full rounded border border-line-strong bg-surface px-2 placeholder:text-ink-2 aria-invalid:border-red";
export const PRIMARY = "border-accent! bg-accent! px-3! py-1! font-medium text-surface! enabled:hover:opacity-90 disabled:opacity-60";
export const LINK_BUTTON = "inline-flex min-h-6 shrink-0 items-center rounded border border-line-strong bg-surface px-2 py-0.5 hover:bg-raised";
