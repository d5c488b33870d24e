/** `/login`: signing in with a token, which is exchanged for a cookie and not kept anywhere. */
import { getRouteApi, useRouter } from "@tanstack/react-router";
import { useState, type FormEvent, type ReactNode } from "react";

import { safeTarget } from "../api/base";
import { forgetReader } from "../api/queries";
import { ApiError } from "../api/request";
import { signIn } from "../api/sign-in";
import { texts } from "../texts";
import { Commands } from "../ui/commands";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { codeHasFailed } from "./one-time-code";

const t = texts.login;
const route = getRouteApi("/login");

export function LoginPage(): ReactNode {
  const { to, why } = route.useSearch();
  const router = useRouter();
  const [token, setToken] = useState("");
  const [error, setError] = useState<string | null>(codeHasFailed() ? t.codeFailed : null);
  const [isBusy, setBusy] = useState(false);

  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await signIn({ token: token.trim() });
      setToken("");
      forgetReader();
      router.history.replace(router.basepath.replace(/\/$/, "") + safeTarget(to));
    } catch (failure) {
      setError(messageOf(failure));
      setBusy(false);
    }
  };

  return (
    <main data-testid="page" data-page="login" data-ready="1" className="flex-1 overflow-auto">
      <title>{`${t.title} · Easel`}</title>
      <div className="mx-auto max-w-md p-6 sm:pt-20">
        <h1 className="mb-2 text-2xl font-semibold">{t.title}</h1>
        <p className="mb-5 text-sm text-ink-2">{why === "signed_out" ? t.signedOut : t.intro}</p>
        <form onSubmit={(event) => void submit(event)} className="rounded-lg border border-line bg-panel p-5">
          <label className="mb-1 block font-medium" htmlFor="token">
            {t.token}
          </label>
          <input
            id="token"
            type="password"
            required
            autoComplete="current-password"
            autoFocus
            spellCheck={false}
            value={token}
            onChange={(event) => setToken(event.target.value)}
            aria-invalid={error !== null}
            aria-describedby={error === null ? undefined : "login-error"}
            className="mb-3 min-h-9 w-full rounded border border-line-strong bg-surface px-2 font-mono"
          />
          {error === null ? null : (
            <p id="login-error" role="alert" data-tone="red" data-border="solid" className="mb-3 rounded bg-tone-soft p-2 text-tone">
              {error}
            </p>
          )}
          <Button type="submit" disabled={isBusy} className="border-accent! bg-accent! px-4! py-1.5! text-sm font-medium text-surface! enabled:hover:opacity-90">
            {t.submit}
          </Button>
        </form>
        <h2 className="mt-8 mb-2 font-semibold">{t.commandsTitle}</h2>
        <Commands commands={t.commands} />
      </div>
    </main>
  );
}

function messageOf(failure: unknown): string {
  if (!(failure instanceof ApiError)) return String(failure);
  if (failure.status === 429) return t.tooMany(failure.retryAfter ?? 60);
  return failure.status === 401 ? t.unknown : visibleName(failure.message, 500);
}
