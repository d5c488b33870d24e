/** The secret of a share in the fragment of `/s#…`: it is taken out of the address before anything else happens. */
import { basePath } from "../api/base";

let secret: string | null = null;

/** Take the secret out of the address, if this is the page of a share; return whether there was one. */
export function takeShareSecret(): boolean {
  const isSharePage = location.pathname === `${basePath().replace(/\/$/, "")}/s`;
  const written = location.hash.replace(/^#/, "");
  if (!isSharePage || !written) return false;
  history.replaceState(history.state, "", location.pathname + location.search);
  secret = written;
  return true;
}

/** Return the secret that was taken and has not been used, and forget it. */
export function consumeSecret(): string | null {
  const taken = secret;
  secret = null;
  return taken;
}
