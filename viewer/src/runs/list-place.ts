/** Where a reader was in the list before a run was opened; held by the page while it is open. */
export interface ListPlace {
  runId: string;
  scrollTop: number;
}

const places = new Map<string, ListPlace>();

export function rememberPlace(key: string, place: ListPlace): void {
  places.set(key, place);
}

/** Return the place once: a list that is opened again later begins at its top. */
export function recallPlace(key: string): ListPlace | null {
  const place = places.get(key) ?? null;
  places.delete(key);
  return place;
}
