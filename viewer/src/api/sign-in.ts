/** Who is signed in, signing in and out. */
import type { About, SignInList } from "./replies";
import { request } from "./request";

export function readAbout(signal?: AbortSignal): Promise<About> {
  return request<About>("/viewer", { isSignIn: true, ...(signal ? { signal } : {}) });
}

/** Exchange a token or a one-time code for a cookie. Raises ApiError. */
export async function signIn(secret: { token: string } | { code: string }): Promise<void> {
  await request("/viewer/session", { method: "POST", body: secret, isSignIn: true });
}

export async function signOut(): Promise<void> {
  await request("/viewer/session", { method: "DELETE", isSignIn: true });
}

/** Return the browsers that are signed in with the token of this one, the newest first. */
export function listSignIns(before?: string, signal?: AbortSignal): Promise<SignInList> {
  return request("/viewer/sessions_of_mine", { query: { before, limit: 50 }, ...(signal ? { signal } : {}) });
}

export async function endSignIn(id: string): Promise<void> {
  await request(`/viewer/sessions_of_mine/${id}`, { method: "DELETE" });
}
