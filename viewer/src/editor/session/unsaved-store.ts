/** Changes of drafts that are not saved, in the browser's database: they survive a closed tab. */

export interface UnsavedDraft {
  /** Of the page that has made the changes. */
  id: string;
  agentId: string;
  /** Of the draft that was changed. */
  etag: string;
  /** The draft and the changed document, as texts. */
  base: string;
  document: string;
  /** Whether secrets were typed, which are not among the changes. */
  lacksSecrets?: boolean;
  /** When, in milliseconds since 1970. */
  at: number;
}

export interface UnsavedStore {
  /** Return what pages that are closed have left. */
  find(agentId: string): Promise<readonly UnsavedDraft[]>;
  write(draft: UnsavedDraft): Promise<void>;
  remove(id: string): Promise<void>;
}

const DATABASE = "easel-drafts";
const TABLE = "unsaved";
const LOCK = "easel-draft ";
const KEPT_MS = 30 * 24 * 3600 * 1000;

/** The store of the browser. Where it has none, nothing is kept. */
export class BrowserUnsavedStore implements UnsavedStore {
  private database: Promise<IDBDatabase | null> | null = null;

  /** Hold a lock while this page is open, so that other pages know that its changes are not left behind. */
  constructor(pageId: string, isClosed: Promise<unknown>) {
    void locks()?.request(`${LOCK}${pageId}`, () => isClosed);
  }

  async find(agentId: string): Promise<readonly UnsavedDraft[]> {
    const all = await this.read<UnsavedDraft[]>("readonly", (table) => table.getAll());
    const open = new Set((await locks()?.query())?.held?.map((lock) => lock.name) ?? []);
    const left = (all ?? []).filter((draft) => !open.has(`${LOCK}${draft.id}`));
    for (const draft of left) if (draft.at < Date.now() - KEPT_MS) void this.remove(draft.id);
    return left.filter((draft) => draft.agentId === agentId).sort((a, b) => b.at - a.at);
  }

  async write(draft: UnsavedDraft): Promise<void> {
    await this.read("readwrite", (table) => table.put(draft));
  }

  async remove(id: string): Promise<void> {
    await this.read("readwrite", (table) => table.delete(id));
  }

  private async read<T>(mode: IDBTransactionMode, action: (table: IDBObjectStore) => IDBRequest): Promise<T | null> {
    this.database ??= openDatabase();
    const database = await this.database;
    if (!database) return null;
    return new Promise((resolve) => {
      const asked = action(database.transaction(TABLE, mode).objectStore(TABLE));
      asked.onsuccess = () => resolve(asked.result as T);
      asked.onerror = () => resolve(null);
    });
  }
}

function openDatabase(): Promise<IDBDatabase | null> {
  return new Promise((resolve) => {
    try {
      const asked = indexedDB.open(DATABASE, 1);
      asked.onupgradeneeded = () => asked.result.createObjectStore(TABLE, { keyPath: "id" });
      asked.onsuccess = () => resolve(asked.result);
      asked.onerror = () => resolve(null);
    } catch {
      resolve(null);
    }
  });
}

/** Locks exist only on pages with TLS and of this computer. */
function locks(): LockManager | undefined {
  return (navigator as { locks?: LockManager }).locks;
}
