/** What surrounds every page: the rail with the pages, the top bar, the skip link. */
import { Link, useRouter } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { texts } from "../texts";
import { Menu, type MenuItem } from "./menu";
import { changeSettings, useSettings } from "./settings";
import { useTheme } from "./theme";
import { useNarrow } from "./use-width";
import { visibleName } from "./visible-text";

const t = texts.rail;
const LONG_NAME = 10; // characters
const THEME_ICONS = { system: "◐", light: "☀", dark: "☾", contrast: "◑" } as const;

interface PageLink {
  to: string;
  icon: string;
  name: string;
  hint?: string;
  /** In a narrow window it is in the menu "More". */
  isMinor?: boolean;
}

/** The pages of the rail, in their order. */
export const PAGES: readonly PageLink[] = [
  { to: "/runs", icon: "≡", name: texts.runsPage },
  { to: "/agents", icon: "◫", name: texts.agents.title },
  { to: "/conversations", icon: "❝", name: texts.conversations.title },
  { to: "/overview", icon: "▥", name: texts.overview.title },
  { to: "/system", icon: "♥", name: texts.system.title, isMinor: true },
  { to: "/open", icon: "⇪", name: t.open, hint: texts.openPage, isMinor: true },
];
const SETTINGS: PageLink = { to: "/settings", icon: "⚙", name: t.settings };

interface Props {
  children: ReactNode;
  /** The tenant of the reader who is signed in. */
  reader?: string;
  onSignOut?: () => void;
  /** Opens the command palette. */
  onSearch?: () => void;
  onHelp: () => void;
}

export function Shell({ children, ...actions }: Props): ReactNode {
  const isNarrow = useNarrow(640);
  return (
    <div className="flex h-full flex-col-reverse sm:flex-row">
      <a href="#content" className="fixed top-0 left-0 z-50 -translate-y-full bg-surface p-2 text-accent underline focus:translate-y-0" onClick={skip}>
        {texts.skip}
      </a>
      {isNarrow ? <BottomBar {...actions} /> : <Rail {...actions} />}
      <div id="content" tabIndex={-1} className="flex min-h-0 min-w-0 flex-1 flex-col outline-none">
        {children}
      </div>
    </div>
  );
}

type Actions = Omit<Props, "children">;

/** The rail at the left: 80 pixels wide, or 200 with names beside the icons. */
function Rail({ reader, onSignOut, onSearch, onHelp }: Actions): ReactNode {
  const [theme, goOn] = useTheme();
  const isPinned = useSettings().rail === "pinned";
  return (
    <nav
      aria-label={texts.pages}
      className={`flex shrink-0 flex-col gap-1 overflow-y-auto border-r border-line bg-panel p-1 ${isPinned ? "w-50" : "w-20"}`}
    >
      <span className={`flex items-center py-1 ${isPinned ? "" : "flex-col"}`}>
        <span className={`font-semibold ${isPinned ? "flex-1 px-2" : ""}`} aria-hidden="true">
          Easel
        </span>
        <RailButton
          icon={isPinned ? "«" : "»"}
          name=""
          hint={isPinned ? t.unpin : t.pin}
          isPinned={false}
          isExpanded={isPinned}
          onClick={() => changeSettings({ rail: isPinned ? "narrow" : "pinned" })}
        />
      </span>
      {PAGES.map((page) => (
        <RailLink key={page.to} page={page} isPinned={isPinned} />
      ))}
      <span className="flex-1" />
      {onSearch ? <RailButton icon="⌕" name={t.search} hint={t.searchHint} isPinned={isPinned} onClick={onSearch} /> : null}
      <RailButton icon="?" name={t.help} hint={t.helpHint} isPinned={isPinned} onClick={onHelp} />
      <RailButton icon={THEME_ICONS[theme]} name={t.theme} hint={texts.theme[theme]} isPinned={isPinned} onClick={goOn} />
      <RailLink page={SETTINGS} isPinned={isPinned} />
      {onSignOut ? (
        <RailButton icon="⎋" name={texts.signOut} hint={`${texts.signOut}: ${visibleName(reader ?? "", 60)}`} isLabelled isPinned={isPinned} onClick={onSignOut} />
      ) : null}
    </nav>
  );
}

/** The bar at the bottom of a narrow window: the first pages, and a menu with everything else. */
function BottomBar({ reader, onSignOut, onSearch, onHelp }: Actions): ReactNode {
  const router = useRouter();
  const [theme, goOn] = useTheme();
  const openPage = ({ to, name, hint = name }: PageLink): MenuItem => ({ label: hint, onSelect: () => void router.navigate({ to }) });
  const signOut: MenuItem[] = onSignOut ? [{ label: `${texts.signOut}: ${visibleName(reader ?? "", 60)}`, onSelect: onSignOut }] : [];
  const items: (MenuItem | null)[] = [
    ...PAGES.filter((page) => page.isMinor).map(openPage),
    openPage(SETTINGS),
    null,
    { label: texts.theme[theme], onSelect: goOn },
    { label: t.helpHint, onSelect: onHelp },
    ...signOut,
  ];
  return (
    <nav aria-label={texts.pages} className="flex shrink-0 justify-around border-t border-line bg-panel">
      {PAGES.filter((page) => !page.isMinor).map((page) => (
        <RailLink key={page.to} page={page} isPinned={false} />
      ))}
      {onSearch ? <RailButton icon="⌕" name={t.search} hint={t.searchHint} isPinned={false} onClick={onSearch} /> : null}
      <Menu items={items}>
        <button type="button" className={lookOf(false)} title={t.moreHint}>
          <Icon>⋯</Icon>
          {t.more}
        </button>
      </Menu>
    </nav>
  );
}

function lookOf(isPinned: boolean): string {
  const place = isPinned ? "min-h-8 gap-2 px-2 text-[13px]" : "min-h-11 flex-col justify-center gap-0.5 text-[11px] max-sm:min-w-0 max-sm:flex-1 max-sm:text-[10px]";
  return `flex w-full min-w-14 shrink-0 items-center rounded text-ink-2 hover:bg-raised hover:text-ink ${place}`;
}

function Icon({ children }: { children: string }): ReactNode {
  return (
    <span aria-hidden="true" className="w-5 text-center text-base leading-5">
      {children}
    </span>
  );
}

function RailLink({ page: { to, icon, name, hint }, isPinned }: { page: PageLink; isPinned: boolean }): ReactNode {
  return (
    <Link
      to={to}
      activeOptions={{ includeSearch: false }}
      className={lookOf(isPinned)}
      activeProps={{ className: "bg-accent-soft text-ink! font-medium", "aria-current": "page" }}
      {...(hint === undefined ? {} : { "aria-label": hint, title: hint })}
    >
      <Icon>{icon}</Icon>
      <span className={`max-w-full truncate ${!isPinned && name.length > LONG_NAME ? "text-[9.5px] tracking-[-0.03em]" : ""}`}>{name}</span>
    </Link>
  );
}

interface RailButtonProps {
  icon: string;
  name: string;
  hint: string;
  isPinned: boolean;
  /** Whether the name alone says what it does; else the hint does. */
  isLabelled?: boolean;
  isExpanded?: boolean;
  onClick: () => void;
}

function RailButton({ icon, name, hint, isPinned, isLabelled = false, isExpanded, onClick }: RailButtonProps): ReactNode {
  return (
    <button
      type="button"
      className={`${lookOf(isPinned)} ${name ? "" : "min-h-7! w-8! min-w-8!"}`}
      onClick={onClick}
      title={hint}
      {...(isLabelled ? {} : { "aria-label": hint })}
      {...(isExpanded === undefined ? {} : { "aria-pressed": isExpanded })}
    >
      <Icon>{icon}</Icon>
      {name ? <span className="max-w-full truncate">{name}</span> : null}
    </button>
  );
}

/** Move the focus without changing the address, whose base is not that of the page. */
function skip(event: { preventDefault: () => void }): void {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

/** The bar at the top of a page: where the reader is, and the page's actions. */
export function TopBar({ crumbs, actions }: { crumbs: ReactNode; actions?: ReactNode }): ReactNode {
  return (
    <div className="flex min-h-11 shrink-0 items-center gap-3 border-b border-line px-3">
      <div className="min-w-0 flex-1 truncate">{crumbs}</div>
      {actions}
    </div>
  );
}
