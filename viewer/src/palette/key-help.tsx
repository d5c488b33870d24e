/** The keys that work now, each with what it does. */
import { useState, type ReactNode } from "react";

import { texts } from "../texts";
import { Dialog } from "../ui/dialog";
import { useReturnedFocus } from "../ui/returned-focus";
import { isSingleKey, useShortcutList, useSingleKeysOn } from "../ui/shortcuts";

const t = texts.help;
const isMac = /Mac|iPhone|iPad/.test(navigator.userAgent);

/** Return a key as it is printed on keyboards: "Ctrl+K". */
export function keyName(key: string): string {
  const parts = key.length > 1 && key.includes("+") ? key.split("+") : [key];
  const [name = "", ...modifiers] = parts.toReversed();
  const written = modifiers.toReversed().map((each) => (each === "Mod" ? (isMac ? "⌘" : "Ctrl+") : `${each}+`));
  return written.join("") + (t.names[name] ?? (modifiers.includes("Mod") && name.length === 1 ? name.toUpperCase() : name));
}

export function KeyHelp({ onClose }: { onClose: () => void }): ReactNode {
  useReturnedFocus();
  const areOn = useSingleKeysOn();
  const all = useShortcutList();
  const [isWide] = useState(() => all.length > 8);
  const shown = all.filter((each) => areOn || !isSingleKey(each));
  return (
    <Dialog title={t.title} onClose={onClose}>
      {areOn ? null : <p className="mb-2">{t.off}</p>}
      {shown.length ? (
        <dl className={`grid gap-x-6 gap-y-1 ${isWide ? "sm:grid-cols-2" : ""}`}>
          {shown.map(({ key, description }) => (
            <div key={key} className="flex min-h-6 items-center gap-3">
              <dt className="w-24 shrink-0 text-right">
                <kbd className="rounded border border-line-strong bg-panel px-1.5 py-0.5 font-mono text-xs">{keyName(key)}</kbd>
              </dt>
              <dd>{description}</dd>
            </div>
          ))}
        </dl>
      ) : (
        <p>{t.none}</p>
      )}
      <p className="mt-3 text-ink-2">{t.always}</p>
    </Dialog>
  );
}
