/**
 * What a tab remembers of a chat until it is closed: in its session storage, or where the browser refuses that, as in
 * frames of other sites, with the entry of the frame in its history. Both survive a reload.
 */
export interface TabMemory {
  read(key: string): string | null;
  write(key: string, value: string): void;
}

export const tabMemory: TabMemory = {
  read(key) {
    try {
      return sessionStorage.getItem(key);
    } catch {
      const state: unknown = history.state;
      const held = typeof state === "object" && state !== null ? (state as Record<string, unknown>)[key] : null;
      return typeof held === "string" ? held : null;
    }
  },
  write(key, value) {
    try {
      sessionStorage.setItem(key, value);
    } catch {
      history.replaceState({ ...(history.state as object | null), [key]: value }, "");
    }
  },
};
