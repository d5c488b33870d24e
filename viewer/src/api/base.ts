/** The base path of the application, from `<base href="{base}/ui/">`, which the server writes into index.html. */

/** Return the base path: "/" or "/easel", for an application below EASEL_BASE_PATH. */
export function basePath(baseUri: string = document.baseURI): string {
  const path = new URL(baseUri).pathname.replace(/\/ui\/.*$|\/$/, "");
  return path || "/";
}

export type Query = Readonly<Record<string, string | number | undefined>>;

/** Return the address of a route of the API; parameters that are empty are left out. */
export function apiUrl(path: string, query: Query = {}, base: string = basePath()): string {
  const given = Object.entries(query).filter((entry): entry is [string, string | number] => entry[1] !== undefined && entry[1] !== "");
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `${base === "/" ? "" : base}/api/v1${path}${search ? `?${search}` : ""}`;
}

/**
 * Return where a sign-in leads to: the path below the base path and its search, as the router has it. What names
 * another host, another application or the sign-in itself leads to the list of runs.
 */
export function safeTarget(to: string | undefined, origin: string = location.origin): string {
  const otherwise = "/runs";
  if (to === undefined || !to.startsWith("/") || /[\\\p{Cc}]/u.test(to)) return otherwise;
  try {
    const url = new URL(to, origin);
    if (url.origin !== origin || url.pathname.startsWith("//") || url.pathname === "/login" || url.pathname === "/") return otherwise;
    return url.pathname + url.search;
  } catch {
    return otherwise;
  }
}
