/** The browsers that are signed in with the token of this one, each with a button that ends its sign-in. */
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import type { SignInRow } from "../api/replies";
import { reportSignedOut } from "../api/request";
import { endSignIn, listSignIns } from "../api/sign-in";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { ConfirmDialog } from "../ui/dialog";
import { minute } from "../ui/format";
import { Moment } from "../ui/moment";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { browserName } from "./browser-name";

const t = texts.settings;
const REFRESH_MS = 15_000;

export function SignIns({ now }: { now: number }): ReactNode {
  const client = useQueryClient();
  const announce = useAnnounce();
  const [ending, setEnding] = useState<SignInRow | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const list = useInfiniteQuery({
    queryKey: ["sign-ins"],
    queryFn: ({ pageParam, signal }) => listSignIns(pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    refetchInterval: REFRESH_MS,
    staleTime: 0,
  });
  const rows = list.data?.pages.flatMap((page) => page.sessions) ?? [];

  const end = async (row: SignInRow): Promise<void> => {
    setBusy(true);
    try {
      await endSignIn(row.id);
      setEnding(null);
      announce(t.ended);
      if (row.is_current) reportSignedOut();
      else await client.invalidateQueries({ queryKey: ["sign-ins"] });
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    } finally {
      setBusy(false);
    }
  };
  if (list.isPending) return <p className="text-ink-2">{t.loading}</p>;
  return (
    <>
      {list.error ? (
        <p role="alert" data-tone="red" className="text-tone">
          {t.failed} {list.error.message}
        </p>
      ) : null}
      <ul>
        {rows.map((row) => (
          <li key={row.id} data-testid="sign-in" data-current={row.is_current ? "1" : "0"} className="flex flex-wrap items-center gap-x-4 gap-y-1 border-b border-line py-2">
            <span className="min-w-0 flex-1 basis-60">
              <span className="font-medium" title={visibleName(row.agent, 500)}>
                {nameOf(row)}
              </span>
              {row.is_current ? <span className="ml-2 rounded bg-accent-soft px-1.5 text-accent">{t.current}</span> : null}
              <span className="block text-xs text-ink-2">
                {t.signInColumns.kind}: {row.kind} · {t.signInColumns.begun} {minute(Date.parse(row.created_at))} · {t.signInColumns.seen}{" "}
                <Moment at={Date.parse(row.last_seen_at)} now={now} /> · {t.signInColumns.ends} {minute(Date.parse(row.expires_at))}
              </span>
            </span>
            <Button
              aria-label={t.endOf(nameOf(row), minute(Date.parse(row.created_at)))}
              onClick={() => {
                setError(null);
                setEnding(row);
              }}
            >
              {t.end}
            </Button>
          </li>
        ))}
      </ul>
      {list.hasNextPage ? (
        <Button className="self-start" disabled={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
          {t.more}
        </Button>
      ) : null}
      {ending ? (
        <ConfirmDialog
          title={t.endTitle}
          text={ending.is_current ? t.endOwnText : t.endText}
          confirm={t.end}
          refuse={t.keep}
          isBusy={isBusy}
          error={error}
          onConfirm={() => void end(ending)}
          onClose={() => setEnding(null)}
        />
      ) : null}
    </>
  );
}

function nameOf(row: SignInRow): string {
  return browserName(row.agent) ?? (visibleName(row.agent, 60) || t.unknownBrowser);
}
