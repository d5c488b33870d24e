/** The dialog of a run's shares: a new link, and the links that there are. */
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useId, useRef, useState, type FormEvent, type ReactNode } from "react";

import type { CreatedShare, Share } from "../api/replies";
import { newIdempotencyKey } from "../api/request";
import { createShare, HIDEABLE, listShares, revokeShare, type Hideable } from "../api/shares";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { Dialog } from "../ui/dialog";
import { moment } from "../ui/format";
import { Button, CopyButton } from "../ui/parts";
import { visibleName } from "../ui/visible-text";

const t = texts.shares;
const DEFAULT_LIFETIME = 604_800;
const MAX_NOTE_CHARS = 200;
const CONTROL = "min-h-8 rounded border border-line-strong bg-surface px-2";

const keyOf = (runId: string): readonly unknown[] => ["shares", runId];

export function ShareDialog({ runId, onClose }: { runId: string; onClose: () => void }): ReactNode {
  const [created, setCreated] = useState<CreatedShare | null>(null);
  const queries = useQueryClient();
  const onCreated = (share: CreatedShare): void => {
    setCreated(share);
    void queries.invalidateQueries({ queryKey: keyOf(runId) });
  };
  return (
    <Dialog title={t.title} description={t.description} onClose={onClose}>
      {created ? <CreatedLink share={created} /> : <NewLink runId={runId} onCreated={onCreated} />}
      <h2 className="mt-5 mb-1 font-semibold">{t.list}</h2>
      <Links runId={runId} />
    </Dialog>
  );
}

function NewLink({ runId, onCreated }: { runId: string; onCreated: (share: CreatedShare) => void }): ReactNode {
  const id = useId();
  const key = useRef(newIdempotencyKey());
  const announce = useAnnounce();
  const [lifetime, setLifetime] = useState<number>(DEFAULT_LIFETIME);
  const [hidden, setHidden] = useState<readonly Hideable[]>([]);
  const [mayAnswer, setMayAnswer] = useState(false);
  const [note, setNote] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);

  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const share = await createShare(runId, { expires_in: lifetime, hide: hidden, may_answer: mayAnswer, note }, key.current);
      announce(t.created);
      onCreated(share);
    } catch (failure) {
      key.current = newIdempotencyKey();
      setError(messageOf(failure));
      setBusy(false);
    }
  };
  const toggle = (kind: Hideable, isOn: boolean): void => {
    key.current = newIdempotencyKey();
    setHidden((now) => HIDEABLE.filter((each) => (each === kind ? isOn : now.includes(each))));
  };
  return (
    <form onSubmit={(event) => void submit(event)} className="flex flex-col gap-3">
      <label className="flex flex-wrap items-center gap-2">
        {t.expires}
        <select
          className={CONTROL}
          value={lifetime}
          onChange={(event) => {
            key.current = newIdempotencyKey();
            setLifetime(Number(event.target.value));
          }}
        >
          {t.lifetimes.map(([seconds, word]) => (
            <option key={seconds} value={seconds}>
              {word}
            </option>
          ))}
        </select>
      </label>
      <fieldset>
        <legend className="mb-1 font-medium">{t.hide}</legend>
        <div className="grid gap-x-4 sm:grid-cols-2">
          {HIDEABLE.map((kind) => (
            <label key={kind} className="flex min-h-7 items-start gap-2 py-0.5">
              <input
                type="checkbox"
                className="mt-0.5 size-4 shrink-0"
                checked={hidden.includes(kind)}
                aria-describedby={`${id}-${kind}`}
                onChange={(event) => toggle(kind, event.target.checked)}
              />
              <span>
                {t.kinds[kind]}
                <span id={`${id}-${kind}`} className="block text-xs text-ink-2">
                  {t.kindHints[kind]}
                </span>
              </span>
            </label>
          ))}
        </div>
        <p className="mt-1 text-xs text-ink-2">{t.hideNote}</p>
      </fieldset>
      <label className="flex min-h-6 items-center gap-2">
        <input
          type="checkbox"
          className="size-4"
          checked={mayAnswer}
          onChange={(event) => {
            key.current = newIdempotencyKey();
            setMayAnswer(event.target.checked);
          }}
        />
        {t.mayAnswer}
      </label>
      <div>
        <label htmlFor={`${id}-note`} className="block">
          {t.note}
        </label>
        <input
          id={`${id}-note`}
          className={`${CONTROL} w-full`}
          maxLength={MAX_NOTE_CHARS}
          autoComplete="off"
          aria-describedby={`${id}-note-hint`}
          value={note}
          onChange={(event) => {
            key.current = newIdempotencyKey();
            setNote(event.target.value);
          }}
        />
        <span id={`${id}-note-hint`} className="text-xs text-ink-2">
          {t.noteHint}
        </span>
      </div>
      <Problem error={error} />
      <Button type="submit" disabled={isBusy} className="self-start border-accent! bg-accent! px-3! py-1! font-medium text-surface! enabled:hover:opacity-90">
        {t.create}
      </Button>
    </form>
  );
}

function CreatedLink({ share }: { share: CreatedShare }): ReactNode {
  const id = useId();
  const link = location.origin + share.url;
  return (
    <div data-tone="green" data-border="solid" className="rounded bg-tone-soft p-3">
      <label htmlFor={id} className="block font-medium">
        {t.link}
      </label>
      <div className="flex items-center gap-1">
        <input
          id={id}
          readOnly
          value={link}
          autoFocus
          onFocus={(event) => event.target.select()}
          className={`${CONTROL} min-w-0 flex-1 font-mono text-xs`}
        />
        <CopyButton text={() => link} label={t.copyLink} />
      </div>
      <p className="mt-1">{t.linkOnce}</p>
    </div>
  );
}

function Links({ runId }: { runId: string }): ReactNode {
  const found = useInfiniteQuery({
    queryKey: keyOf(runId),
    queryFn: ({ pageParam, signal }) => listShares(runId, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    staleTime: 0,
    gcTime: 0,
  });
  if (found.isPending) return <p className="text-ink-2">{t.loading}</p>;
  if (found.isError && !found.data) return <Problem error={messageOf(found.error)} />;
  const shares = found.data.pages.flatMap((page) => page.shares);
  if (!shares.length) return <p className="text-ink-2">{t.none}</p>;
  return (
    <>
      <ul aria-label={t.list} className="divide-y divide-line border-y border-line">
        {shares.map((share) => (
          <OneLink key={share.id} runId={runId} share={share} />
        ))}
      </ul>
      {found.hasNextPage ? (
        <Button className="mt-2 self-start" disabled={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
          {t.more}
        </Button>
      ) : null}
    </>
  );
}

function OneLink({ runId, share }: { runId: string; share: Share }): ReactNode {
  const queries = useQueryClient();
  const announce = useAnnounce();
  const [step, setStep] = useState<"idle" | "asking" | "busy">("idle");
  const [error, setError] = useState<string | null>(null);
  const name = visibleName(share.note) || t.unnamed;
  const revoke = async (): Promise<void> => {
    setStep("busy");
    setError(null);
    try {
      await revokeShare(runId, share.id);
      announce(t.revokeDone);
      await queries.invalidateQueries({ queryKey: keyOf(runId) });
    } catch (failure) {
      setError(messageOf(failure));
    } finally {
      setStep("idle");
    }
  };
  const facts = [
    stateOf(share),
    share.hide.length ? t.hides(share.hide.map((kind) => wordOf(kind)).join(", ")) : t.hidesNothing,
    ...(share.may_answer ? [t.answers] : []),
    share.last_used_at === null ? t.unused : t.used(share.uses, momentOf(share.last_used_at)),
  ];
  return (
    <li className="flex flex-wrap items-center gap-x-3 gap-y-1 py-2">
      <div className="min-w-0 flex-1 basis-60">
        <p className={`break-words ${share.is_over ? "text-ink-2 line-through" : "font-medium"}`}>
          <bdi>{name}</bdi>
        </p>
        <p className="text-ink-2">{facts.join(" · ")}</p>
        <Problem error={error} />
      </div>
      {share.is_over ? null : step === "idle" ? (
        <Button aria-label={t.revokeOf(name)} onClick={() => setStep("asking")}>
          {t.revoke}
        </Button>
      ) : (
        <span className="flex gap-2">
          <Button onClick={() => setStep("idle")}>{t.revokeKeep}</Button>
          <Button autoFocus disabled={step === "busy"} className="border-red! font-medium text-red!" onClick={() => void revoke()}>
            {t.revokeSure}
          </Button>
        </span>
      )}
    </li>
  );
}

function stateOf(share: Share): string {
  if (share.revoked_at !== null) return t.revoked(momentOf(share.revoked_at));
  return share.is_over ? t.expired(momentOf(share.expires_at)) : t.valid(momentOf(share.expires_at));
}

function wordOf(kind: string): string {
  return (HIDEABLE.find((each) => each === kind) ? t.kinds[kind as Hideable] : kind).toLowerCase();
}

function momentOf(iso: string): string {
  return moment(Date.parse(iso)).slice(0, -3);
}

function messageOf(failure: unknown): string {
  return failure instanceof Error ? failure.message : String(failure);
}

function Problem({ error }: { error: string | null }): ReactNode {
  return error === null ? null : (
    <p role="alert" className="text-red">
      {visibleName(error, 500)}
    </p>
  );
}
