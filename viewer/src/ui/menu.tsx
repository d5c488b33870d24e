/** A menu that opens at a button, for actions that need no place of their own. */
import * as Radix from "@radix-ui/react-dropdown-menu";
import type { ReactNode } from "react";

export interface MenuItem {
  label: string;
  onSelect: () => void;
  isDisabled?: boolean;
  /** Why it is disabled, or what it does. */
  hint?: string;
}

/** `children` is the button; null between items is a line. */
export function Menu({ items, children }: { items: readonly (MenuItem | null)[]; children: ReactNode }): ReactNode {
  return (
    <Radix.Root>
      <Radix.Trigger asChild>{children}</Radix.Trigger>
      <Radix.Portal>
        <Radix.Content
          align="end"
          sideOffset={4}
          collisionPadding={8}
          className="z-50 max-h-(--radix-dropdown-menu-content-available-height) min-w-44 overflow-auto rounded border border-line-strong bg-surface p-1 text-ink shadow-lg"
        >
          {items.map((item, place) =>
            item === null ? (
              <Radix.Separator key={place} className="my-1 h-px bg-line" />
            ) : (
              <Radix.Item
                key={item.label}
                onSelect={item.onSelect}
                {...(item.isDisabled ? { disabled: true } : {})}
                {...(item.hint === undefined ? {} : { title: item.hint })}
                className="flex min-h-7 cursor-pointer items-center rounded px-2 outline-none data-[disabled]:cursor-default data-[disabled]:text-ink-2 data-[highlighted]:bg-accent-soft"
              >
                {item.label}
              </Radix.Item>
            ),
          )}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}
