/** The one-time code of an address like `/#c=…`, which `easel up` and `easel view` print. */
import { forgetReader } from "../api/queries";
import { signIn } from "../api/sign-in";

let hasFailed = false;

/** Return whether the address had a code with which signing in has failed. */
export function codeHasFailed(): boolean {
  return hasFailed;
}

/** Exchange the code of the address, if it has one, and remove it from the address first. */
export async function redeemCode(): Promise<void> {
  const code = new URLSearchParams(location.hash.replace(/^#/, "")).get("c");
  if (code === null) return;
  history.replaceState(history.state, "", location.pathname + location.search);
  try {
    await signIn({ code });
    forgetReader();
  } catch {
    hasFailed = true;
  }
}
