/** What stands above the list of runs: the switch for live rows, saved views, and the choice of columns. */
import * as Popover from "@radix-ui/react-popover";
import { useState, type FormEvent, type ReactNode } from "react";

import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { Dialog } from "../ui/dialog";
import { Menu, type MenuItem } from "../ui/menu";
import { Button } from "../ui/parts";
import { useStored } from "../ui/stored-value";
import { visibleName } from "../ui/visible-text";
import { COLUMNS, hiddenColumns } from "./columns";
import { hasFilters, type RunListSearch } from "./run-list-search";
import { MAX_NAME_CHARS, removeView, savedViews, saveView } from "./saved-views";

const t = texts.runs;

interface Props {
  search: RunListSearch;
  onLive: (isLive: boolean) => void;
  onView: (search: RunListSearch) => void;
}

export function ListMenus({ search, onLive, onView }: Props): ReactNode {
  const views = useStored(savedViews);
  const [isEditing, setEditing] = useState(false);
  const items: (MenuItem | null)[] = [
    ...views.map((view): MenuItem => ({ label: visibleName(view.name, MAX_NAME_CHARS), onSelect: () => onView(view.search) })),
    ...(views.length ? [null] : []),
    { label: t.editViews, onSelect: () => setEditing(true) },
  ];
  return (
    <span className="flex items-center gap-2">
      <label className="flex min-h-6 cursor-pointer items-center gap-1" title={t.liveHint}>
        <input type="checkbox" role="switch" checked={search.live !== "off"} onChange={(event) => onLive(event.target.checked)} />
        {t.live}
      </label>
      <Menu items={items}>
        <Button>{t.views} ▾</Button>
      </Menu>
      <ColumnChoice />
      {isEditing ? <ViewsDialog search={search} onClose={() => setEditing(false)} /> : null}
    </span>
  );
}

function ColumnChoice(): ReactNode {
  const hidden = useStored(hiddenColumns);
  const change = (name: string, isShown: boolean): void => {
    hiddenColumns.write(isShown ? hidden.filter((each) => each !== name) : [...hidden, name]);
  };
  return (
    <Popover.Root>
      <Popover.Trigger asChild>
        <Button className="max-md:hidden">{t.columnsMenu} ▾</Button>
      </Popover.Trigger>
      <Popover.Portal>
        <Popover.Content align="end" sideOffset={4} collisionPadding={8} aria-label={t.columnsMenu} className="z-50 rounded border border-line-strong bg-surface p-2 text-ink shadow-lg">
          <fieldset>
            <legend className="sr-only">{t.columnsMenu}</legend>
            {COLUMNS.map(({ name, from = 0 }) => (
              <label key={name} className="flex min-h-7 cursor-pointer items-center gap-2 px-1">
                <input type="checkbox" checked={!hidden.includes(name)} onChange={(event) => change(name, event.target.checked)} />
                {t.columns[name]}
                {from > innerWidth ? <span className="text-xs text-ink-2">{t.columnFrom(from)}</span> : null}
              </label>
            ))}
          </fieldset>
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  );
}

function ViewsDialog({ search, onClose }: { search: RunListSearch; onClose: () => void }): ReactNode {
  const views = useStored(savedViews);
  const announce = useAnnounce();
  const [name, setName] = useState("");
  const save = (event: FormEvent): void => {
    event.preventDefault();
    const trimmed = name.trim();
    if (!trimmed) return;
    saveView(trimmed, search);
    announce(t.viewSaved(trimmed));
    onClose();
  };
  return (
    <Dialog title={t.viewsTitle} description={hasFilters(search) ? t.viewsText : t.viewsWithout} onClose={onClose}>
      <form onSubmit={save} className="mb-4 flex flex-wrap items-end gap-2">
        <label className="min-w-0 flex-1 basis-60">
          <span className="block text-ink-2">{t.viewName}</span>
          <input required value={name} maxLength={MAX_NAME_CHARS} disabled={!hasFilters(search)} onChange={(event) => setName(event.target.value)} className="min-h-8 w-full rounded border border-line-strong bg-surface px-2 disabled:bg-panel" />
        </label>
        <Button type="submit" className="min-h-8!" disabled={!hasFilters(search) || !name.trim()}>
          {t.saveView}
        </Button>
      </form>
      {views.length ? (
        <ul aria-label={t.views}>
          {views.map((view) => (
            <li key={view.name} className="flex items-center gap-2 border-t border-line py-1">
              <span className="min-w-0 flex-1 truncate">
                <bdi>{visibleName(view.name, MAX_NAME_CHARS)}</bdi>
              </span>
              <Button aria-label={t.removeViewOf(visibleName(view.name, MAX_NAME_CHARS))} onClick={() => removeView(view.name)}>
                {t.removeView}
              </Button>
            </li>
          ))}
        </ul>
      ) : (
        <p className="text-ink-2">{t.noViews}</p>
      )}
    </Dialog>
  );
}
