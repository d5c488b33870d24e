/** The search parameters of the page of versions: which two are compared, and what of their difference is shown. */
export interface VersionSearch {
  /** `draft`, or the id of a version. */
  a?: string;
  b?: string;
  node?: string;
  layout?: "1";
}

export function versionSearch({ a, b, node, layout }: Readonly<Record<string, unknown>>): VersionSearch {
  const isVersion = (value: unknown): value is string => typeof value === "string" && /^([0-9a-f]{32}|draft)$/.test(value);
  return {
    ...(isVersion(a) && { a }),
    ...(isVersion(b) && { b }),
    ...(typeof node === "string" && node && { node: node.slice(0, 200) }),
    ...(layout === "1" && { layout: "1" }),
  };
}
