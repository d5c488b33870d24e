/** Scopes: "" outside of containers, "Iteration:A#0.3" in the fourth item of its first entry, joined by "/". */

export interface ScopePart {
  container: string;
  ordinal: number;
  item: number;
}

/** Return the parts of a scope, the outermost container first. */
export function scopeParts(scope: string): ScopePart[] {
  if (!scope) return [];
  return scope.split("/").map((part) => {
    const hash = part.lastIndexOf("#");
    const [ordinal = "0", item = "0"] = part.slice(hash + 1).split(".");
    const container = part.slice(0, hash).replaceAll("%2F", "/").replaceAll("%25", "%");
    return { container, ordinal: Number(ordinal), item: Number(item) };
  });
}

/** Return the entry of a container, which is what the scopes of its items begin with. */
export function entryOf(scope: string, nodeId: string, ordinal: number): string {
  const name = `${nodeId.replaceAll("%", "%25").replaceAll("/", "%2F")}#${ordinal}`;
  return scope ? `${scope}/${name}` : name;
}

/** Return the entry of the innermost container of a scope, and the item in it; null outside of containers. */
export function splitScope(scope: string): { entry: string; item: number } | null {
  const dot = scope.lastIndexOf(".");
  return dot < 0 ? null : { entry: scope.slice(0, dot), item: Number(scope.slice(dot + 1)) };
}
