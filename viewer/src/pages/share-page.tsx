/** `/s`: one run for people without an account, by the secret of a share in the fragment. */
import { getRouteApi, Link } from "@tanstack/react-router";
import { useCallback, useEffect, useState, useSyncExternalStore, type ReactNode } from "react";

import type { RunSearch } from "../run/run-search";
import { ShareAccess, type Ending } from "../shares/share-access";
import { SharedRun } from "../shares/shared-run";
import { texts } from "../texts";
import { Button, Empty } from "../ui/parts";
import { visibleName } from "../ui/visible-text";

const t = texts.share;
const route = getRouteApi("/s");

export function SharePage(): ReactNode {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [access] = useState(() => new ShareAccess());
  const now = useSyncExternalStore(access.subscribe, access.get);
  useEffect(() => {
    access.start();
    return () => access.stop();
  }, [access]);
  const onSearch = useCallback(
    (change: Partial<RunSearch>, replace = false): void => {
      void navigate({ search: (known) => ({ ...known, ...change }), replace });
    },
    [navigate],
  );
  switch (now.at) {
    case "opening":
      return (
        <Plain isReady={false}>
          <Empty>{t.opening}</Empty>
        </Plain>
      );
    case "asking":
      return <Asking access={access} />;
    case "failed":
      return (
        <Plain isReady title={t.title}>
          <p role="alert" className="mb-3">
            {now.error.status === 429 ? t.tooMany(now.error.retryAfter ?? 60) : visibleName(now.error.message, 500)}
          </p>
          <Button onClick={() => void access.open(false)}>{t.again}</Button>
        </Plain>
      );
    case "over":
      return <Over ending={now.ending} isSignedIn={now.isSignedIn} />;
    case "open":
      return <SharedRun share={now.share} access={access} search={search} onSearch={onSearch} />;
  }
}

function Plain({ isReady, title, children }: { isReady: boolean; title?: string; children: ReactNode }): ReactNode {
  return (
    <main data-testid="page" data-page="share" data-ready={isReady ? "1" : "0"} data-live="off" className="mx-auto w-full max-w-xl flex-1 overflow-auto p-6 sm:pt-20">
      <title>{`${title ?? t.title} · Easel`}</title>
      {title === undefined ? null : <h1 className="mb-2 text-xl font-semibold">{title}</h1>}
      {children}
    </main>
  );
}

function Over({ ending, isSignedIn }: { ending: Ending; isSignedIn: boolean }): ReactNode {
  const [title, text] = t.over[ending];
  return (
    <Plain isReady title={title}>
      <p className="mb-3">{text}</p>
      {isSignedIn ? (
        <Link to="/runs" className="text-accent underline">
          {t.runs}
        </Link>
      ) : null}
    </Plain>
  );
}

function Asking({ access }: { access: ShareAccess }): ReactNode {
  return (
    <Plain isReady title={t.confirmTitle}>
      <p className="mb-4">{t.confirmText}</p>
      <div className="flex flex-wrap items-center gap-3">
        <Button className="px-3! py-1!" onClick={() => void access.open(true)}>
          {t.confirm}
        </Button>
        <Link to="/runs" className="text-accent underline">
          {t.stay}
        </Link>
      </div>
    </Plain>
  );
}
