/** The base path of the application, from `<base href="{base}/ui/">`, which the server writes into index.html. */

/** Return the base path: "/" or "/easel", for an application below EASEL_BASE_PATH. */
export function basePath(baseUri: string = document.baseURI): string {
  const path = new URL(baseUri).pathname.replace(/\/ui\/.*$|\/$/, "");
  return path || "/";
}
