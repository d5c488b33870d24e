/** Lists: adding, moving and removing entries. */
import type { ReactNode } from "react";

import { texts } from "../texts";
import { Button } from "../ui/parts";

const t = texts.nodeForm;

interface Props {
  /** What the entry is called, for the names of the buttons. */
  name: string;
  place: number;
  count: number;
  onMove: (to: number) => void;
  onRemove: () => void;
}

export function EntryActions({ name, place, count, onMove, onRemove }: Props): ReactNode {
  return (
    <span className="flex shrink-0 items-center">
      {count > 1 ? (
        <>
          <Button aria-label={t.moveUp(name)} disabled={place === 0} onClick={() => onMove(place - 1)} className="border-transparent! px-1.5!">
            ↑
          </Button>
          <Button aria-label={t.moveDown(name)} disabled={place === count - 1} onClick={() => onMove(place + 1)} className="border-transparent! px-1.5!">
            ↓
          </Button>
        </>
      ) : null}
      <Button aria-label={t.removeEntry(name)} onClick={onRemove} className="border-transparent! px-1.5!">
        ✕
      </Button>
    </span>
  );
}

export function moved<T>(list: readonly T[], from: number, to: number): T[] {
  const rest = list.filter((_, place) => place !== from);
  return from < list.length ? [...rest.slice(0, to), ...list.slice(from, from + 1), ...rest.slice(to)] : [...list];
}

export function without<T>(list: readonly T[], place: number): T[] {
  return list.filter((_, at) => at !== place);
}
