/** The list of tabs of a page, dialog or column: the arrow keys, Home and End go from one to the next. It stands in a `Tabs.Root` of Radix. */
import * as Tabs from "@radix-ui/react-tabs";
import type { ReactNode } from "react";

interface Props<T extends string> {
  label: string;
  tabs: readonly T[];
  names: Readonly<Record<T, string>>;
  className?: string;
}

export function TabList<T extends string>({ label, tabs, names, className = "" }: Props<T>): ReactNode {
  return (
    <Tabs.List aria-label={label} className={`flex flex-wrap ${className}`}>
      {tabs.map((each) => (
        <Tabs.Trigger
          key={each}
          value={each}
          className="min-h-8 border-b-2 border-transparent px-3 text-ink-2 data-[state=active]:border-accent data-[state=active]:font-medium data-[state=active]:text-ink"
        >
          {names[each]}
        </Tabs.Trigger>
      ))}
    </Tabs.List>
  );
}
