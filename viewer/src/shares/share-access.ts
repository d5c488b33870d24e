/** Opening a share: its secret becomes a cookie, and while the page is open it is checked whether the share goes on. */
import { aboutQuery, forgetReader, queryClient } from "../api/queries";
import type { SharedRun } from "../api/replies";
import { ApiError } from "../api/request";
import { readAbout, signIn } from "../api/sign-in";
import { consumeSecret, takeShareSecret } from "./share-secret";

/** Why a share shows nothing; the words are in the texts of the page. */
export type Ending = "revoked" | "expired" | "unknown" | "none" | "replaced" | "off" | "gone";

export type Access =
  | { at: "opening" }
  /** Someone is signed in here: opening the share would end that. */
  | { at: "asking" }
  | { at: "failed"; error: ApiError }
  | { at: "over"; ending: Ending; isSignedIn: boolean }
  | { at: "open"; share: SharedRun };

const CHECK_MS = 3000;
const SLACK_MS = 2000;

/** The access of one page to a share, without React. */
export class ShareAccess {
  private access: Access = { at: "opening" };
  private secret: string | null = null;
  private timer: ReturnType<typeof setInterval> | null = null;
  private isChecking = false;
  private clockOffset = 0;
  private readonly listeners = new Set<() => void>();

  readonly get = (): Access => this.access;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Open the share of the address, or the one that this browser has a cookie of. */
  start(): void {
    this.secret ??= consumeSecret();
    addEventListener("hashchange", this.onHash);
    document.addEventListener("visibilitychange", this.onVisibility);
    this.timer = setInterval(() => void this.check(), CHECK_MS);
    void this.open(false);
  }

  stop(): void {
    removeEventListener("hashchange", this.onHash);
    document.removeEventListener("visibilitychange", this.onVisibility);
    if (this.timer !== null) clearInterval(this.timer);
  }

  /** Open the share; `isSure`: although someone is signed in. */
  async open(isSure: boolean): Promise<void> {
    this.set({ at: "opening" });
    try {
      const about = await readAbout();
      if (this.secret === null) {
        if (about.share) this.set({ at: "open", share: about.share });
        else this.set({ at: "over", ending: "none", isSignedIn: about.signed_in });
        return;
      }
      if (about.signed_in && !about.share && !isSure) return this.set({ at: "asking" });
      await signIn({ share: this.secret });
      forgetReader();
      const { share } = await queryClient.fetchQuery({ ...aboutQuery, staleTime: 0 });
      this.secret = null;
      this.set(share ? { at: "open", share } : { at: "over", ending: "unknown", isSignedIn: false });
    } catch (error) {
      this.fail(error instanceof ApiError ? error : new ApiError(0, "failed", String(error)));
    }
  }

  /** Note the server's clock, by which the share expires. */
  noteClock(now: number): void {
    if (now) this.clockOffset = now - Date.now();
  }

  /** Find out whether the share goes on, and if not why. */
  async check(): Promise<void> {
    const { access } = this;
    if (access.at !== "open" || this.isChecking || document.hidden) return;
    this.isChecking = true;
    try {
      const { share } = await readAbout();
      if (this.access !== access || share?.run_id === access.share.run_id) return;
      if (share) this.end("replaced");
      else this.end(Date.now() + this.clockOffset >= Date.parse(access.share.expires_at) - SLACK_MS ? "expired" : "revoked");
    } catch {
      // the page says by itself that the API does not answer
    } finally {
      this.isChecking = false;
    }
  }

  end(ending: Ending): void {
    forgetReader();
    this.set({ at: "over", ending, isSignedIn: false });
  }

  private fail(error: ApiError): void {
    if (error.code === "share_over") {
      this.secret = null;
      this.set({ at: "over", ending: /expired/.test(error.message) ? "expired" : "revoked", isSignedIn: false });
    } else if (error.status === 401 || error.status === 400) {
      this.secret = null;
      this.set({ at: "over", ending: "unknown", isSignedIn: false });
    } else if (error.status === 404) this.set({ at: "over", ending: "off", isSignedIn: false });
    else this.set({ at: "failed", error });
  }

  private readonly onHash = (): void => {
    if (!takeShareSecret()) return;
    this.secret = consumeSecret();
    void this.open(false);
  };

  private readonly onVisibility = (): void => {
    if (!document.hidden) void this.check();
  };

  private set(access: Access): void {
    this.access = access;
    for (const listener of this.listeners) listener();
  }
}
