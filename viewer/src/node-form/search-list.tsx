/** A list to search in and to choose from, in a popover at a button: the arrow keys walk, Enter chooses. */
import * as Popover from "@radix-ui/react-popover";
import { useId, useRef, useState, type KeyboardEvent, type ReactNode } from "react";

import { texts } from "../texts";

const t = texts.nodeForm;

export interface ListItem {
  key: string;
  label: string;
  detail: string;
  group: string;
}

interface ListProps {
  /** The accessible name of the search. */
  label: string;
  items: readonly ListItem[];
  words: string;
  onWords: (words: string) => void;
  onSelect: (key: string) => void;
  /** What stands below the list: that it is loading, or that there are more. */
  note?: string;
}

interface Props extends ListProps {
  isOpen: boolean;
  onOpen: (isOpen: boolean) => void;
  /** Where the focus goes when the list closes; the button otherwise. */
  onClosed?: () => void;
  /** The button. */
  children: ReactNode;
}

export function SearchPopover({ isOpen, onOpen, onClosed, children, ...list }: Props): ReactNode {
  return (
    <Popover.Root open={isOpen} onOpenChange={onOpen}>
      <Popover.Trigger asChild>{children}</Popover.Trigger>
      <Popover.Portal>
        <Popover.Content
          align="end"
          sideOffset={4}
          collisionPadding={8}
          aria-label={list.label}
          onCloseAutoFocus={(event) => {
            if (!onClosed) return;
            event.preventDefault();
            onClosed();
          }}
          className="z-50 flex max-h-[min(22rem,var(--radix-popover-content-available-height))] w-[min(22rem,calc(100vw-1rem))] flex-col rounded border border-line-strong bg-surface p-1 text-ink shadow-lg"
        >
          <SearchList {...list} />
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  );
}

function SearchList({ label, items, words, onWords, onSelect, note }: ListProps): ReactNode {
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState(0);
  const at = Math.min(active, items.length - 1);
  const move = (to: number): void => {
    const next = Math.max(0, Math.min(to, items.length - 1));
    setActive(next);
    list.current?.querySelector(`[data-place="${next}"]`)?.scrollIntoView({ block: "nearest" });
  };
  const onKey = (event: KeyboardEvent): void => {
    const steps: Readonly<Record<string, number>> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 };
    const next = steps[event.key];
    const chosen = items[at];
    if (next === undefined && !(event.key === "Enter" && chosen)) return;
    event.preventDefault();
    if (next !== undefined) move(next);
    else if (chosen) onSelect(chosen.key);
  };
  return (
    <>
      <input
        type="text"
        role="combobox"
        autoFocus
        aria-label={label}
        aria-expanded="true"
        aria-controls={`${id}-list`}
        aria-activedescendant={items.length > 0 ? `${id}-${at}` : undefined}
        placeholder={t.search}
        value={words}
        onChange={(event) => {
          setActive(0);
          onWords(event.target.value);
        }}
        onKeyDown={onKey}
        className="mb-1 min-h-7 w-full shrink-0 rounded border border-line-strong bg-surface px-1.5"
      />
      <div ref={list} id={`${id}-list`} role="listbox" aria-label={label} tabIndex={-1} className="min-h-0 flex-1 overflow-auto">
        {items.map((item, place) => (
          <div key={item.key} role="presentation">
            {item.group !== "" && item.group !== items[place - 1]?.group ? (
              <div role="presentation" className="truncate px-1.5 pt-1 text-xs font-medium text-ink-2">
                {item.group}
              </div>
            ) : null}
            <div
              id={`${id}-${place}`}
              role="option"
              aria-selected={place === at}
              data-place={place}
              onPointerMove={() => setActive(place)}
              onClick={() => onSelect(item.key)}
              className="flex min-h-7 cursor-pointer items-center gap-2 rounded px-1.5 aria-selected:bg-accent-soft"
            >
              <span className="min-w-0 flex-1 truncate" title={item.label}>
                {item.label}
              </span>
              <span className="max-w-40 shrink-0 truncate text-xs text-ink-2">{item.detail}</span>
            </div>
          </div>
        ))}
      </div>
      {items.length === 0 || note ? (
        <p role="status" className="shrink-0 px-1.5 py-1 text-xs text-ink-2">
          {note ?? t.nothingFound}
        </p>
      ) : null}
    </>
  );
}
