/** What surrounds every page: the rail with the pages, the top bar, the skip link. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { texts } from "../texts";
import { useTheme } from "./theme";
import { visibleName } from "./visible-text";

const THEME_ICONS = { system: "◐", light: "☀", dark: "☾" } as const;

interface PageLink {
  to: string;
  icon: string;
  name: string;
  hint?: string;
}

/** The pages of the rail, in their order. */
const PAGES: readonly PageLink[] = [
  { to: "/runs", icon: "≡", name: texts.runsPage },
  { to: "/agents", icon: "◫", name: texts.agents.title },
  { to: "/open", icon: "⇪", name: "Open", hint: texts.openPage },
];

interface Props {
  children: ReactNode;
  /** The tenant of the reader who is signed in. */
  reader?: string;
  onSignOut?: () => void;
}

export function Shell({ children, reader, onSignOut }: Props): ReactNode {
  const [theme, goOn] = useTheme();
  const item =
    "flex min-h-11 w-full min-w-14 flex-col items-center justify-center gap-0.5 rounded px-1 text-[11px] text-ink-2 hover:bg-raised hover:text-ink";
  return (
    <div className="flex h-full flex-col-reverse sm:flex-row">
      <a href="#content" className="fixed top-0 left-0 z-50 -translate-y-full bg-surface p-2 text-accent underline focus:translate-y-0" onClick={skip}>
        {texts.skip}
      </a>
      <nav aria-label={texts.pages} className="flex shrink-0 gap-1 border-line bg-panel max-sm:border-t sm:w-16 sm:flex-col sm:border-r sm:p-1">
        <span className="hidden py-2 text-center font-semibold sm:block" aria-hidden="true">
          Easel
        </span>
        {PAGES.map(({ to, icon, name, hint }) => (
          <Link
            key={to}
            to={to}
            activeOptions={{ includeSearch: false }}
            className={item}
            activeProps={{ className: "bg-accent-soft text-ink! font-medium", "aria-current": "page" }}
            {...(hint === undefined ? {} : { "aria-label": hint, title: hint })}
          >
            <span aria-hidden="true" className="text-base">
              {icon}
            </span>
            {name}
          </Link>
        ))}
        <span className="flex-1" />
        <button type="button" className={item} onClick={goOn} aria-label={texts.theme[theme]} title={texts.theme[theme]}>
          <span aria-hidden="true" className="text-base">
            {THEME_ICONS[theme]}
          </span>
          Theme
        </button>
        {onSignOut ? (
          <button type="button" className={item} onClick={onSignOut} title={`${texts.signOut}: ${visibleName(reader ?? "", 60)}`}>
            <span aria-hidden="true" className="text-base">
              ⎋
            </span>
            {texts.signOut}
          </button>
        ) : null}
      </nav>
      <div id="content" tabIndex={-1} className="flex min-h-0 min-w-0 flex-1 flex-col outline-none">
        {children}
      </div>
    </div>
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
