/**
 * The draft that a page edits: what is stored, what the author has changed since, and saving it.
 *
 * A save sends the JSON Patch between the stored and the shown document with the ETag of the stored one. A draft that
 * was changed elsewhere is not overwritten: the session then has a conflict until the author decides.
 */
import type { SavedDraft } from "../../api/replies";
import { ApiError, newIdempotencyKey } from "../../api/request";
import { computedLayout } from "../../graph/layout";
import type { Finding } from "../../node-form/contract";
import { merge } from "../document/changes";
import { Refusal } from "../document/commands";
import { graphOf, isDrawn, withNodes, withPlaces, type Document } from "../document/document";
import { History } from "../document/history";
import { isEqual, isObject, listOf, objectOf, readJson, textOf, withMember, writeJson, type Json } from "../document/json";
import { patchBetween, writePatch, type Patch } from "../document/patch";
import { differInSecrets, withoutSecrets, withSecretsOf, type SecretFields } from "./typed-secrets";
import type { UnsavedDraft, UnsavedStore } from "./unsaved-store";

export type SaveState = "saved" | "saving" | "unsaved" | "conflict" | "offline";

export interface DraftRoutes {
  readDraft(agentId: string): Promise<string>;
  patchDraft(agentId: string, patch: string, etag: string): Promise<SavedDraft>;
  putDraft(agentId: string, document: string, etag: string): Promise<SavedDraft>;
  restoreVersion(agentId: string, versionId: string, etag: string, idempotencyKey: string): Promise<SavedDraft>;
}

/** The draft was changed elsewhere. `merged` is null if both sides have changed the same. */
export interface Conflict {
  base: Document;
  theirs: Document;
  etag: string;
  merged: Document | null;
}

export interface DraftState {
  /** Null until it is loaded. */
  document: Document | null;
  /** Why the draft cannot be shown. */
  error: ApiError | null;
  findings: readonly Finding[];
  /** The published version. */
  published: { versionId: string; digest: string } | null;
  digest: string;
  save: SaveState;
  /** Why the last save has failed. */
  saveError: string | null;
  conflict: Conflict | null;
  /** Changes that an earlier visit has left unsaved. */
  left: UnsavedDraft | null;
  undo: string | null;
  redo: string | null;
}

const AFTER_LAST_CHANGE_MS = 1000;
const WHILE_CHANGING_MS = 5000;
const KEEP_MS = 250;
const RETRY_MS = [1000, 2000, 4000, 8000, 15_000];
const MAX_OPERATIONS = 10_000;

interface Stored {
  /** As the server has it, but for entries that it has derived since. */
  document: Document;
  /** The same with a drawing, which the first change stores. */
  drawn: Document;
  etag: string;
}

export class DraftSession {
  private state: DraftState = {
    document: null, error: null, findings: [], published: null, digest: "", save: "saved", saveError: null, conflict: null, left: null, undo: null, redo: null,
  };
  private readonly listeners = new Set<() => void>();
  private stored: Stored | null = null;
  /** What was loaded: a document whose drawing is that of one of these has its entries, too. */
  private loaded: Stored[] = [];
  private history = new History();
  private saving: Promise<void> | null = null;
  private timer: ReturnType<typeof setTimeout> | null = null;
  private keeper: ReturnType<typeof setTimeout> | null = null;
  private changedSince: number | null = null;
  private failures = 0;
  private isStopped = false;

  constructor(
    readonly agentId: string,
    private readonly pageId: string,
    private readonly routes: DraftRoutes,
    private readonly unsaved: UnsavedStore,
    private readonly secretFields: SecretFields,
  ) {}

  readonly getState = (): DraftState => this.state;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  // -- loading ---------------------------------------------------------------------------------------------------------
  async load(): Promise<void> {
    try {
      const stored = await this.read();
      this.loaded = [stored];
      this.setState({ document: stored.drawn, error: null });
      this.setState({ left: await this.findLeft(stored) });
    } catch (error) {
      this.setState({ error: asApiError(error) });
    }
  }

  /** End the session; what is not saved is kept for the next visit. */
  stop(): void {
    this.isStopped = true;
    if (this.timer !== null) clearTimeout(this.timer);
    void this.keep();
  }

  private async read(): Promise<Stored> {
    const reply = objectOf(readJson(await this.routes.readDraft(this.agentId)));
    const document = objectOf(reply.document);
    const stored = { document, drawn: await drawnOf(document), etag: textOf(reply.etag) };
    const published = objectOf(reply.published);
    this.stored = stored;
    this.setState({
      findings: listOf(reply.findings).filter(isObject).map(findingOf),
      digest: textOf(reply.digest),
      published: published.version_id === undefined ? null : { versionId: textOf(published.version_id), digest: textOf(published.digest) },
    });
    return stored;
  }

  private async findLeft(stored: Stored): Promise<UnsavedDraft | null> {
    for (const draft of await this.unsaved.find(this.agentId)) {
      const kept = this.readKept(draft.document, stored);
      const isNews = patchBetween(stored.document, withMember(kept, "components", stored.document.components ?? null)).length > 0;
      if (isNews || draft.lacksSecrets) return draft;
      await this.unsaved.remove(draft.id);
    }
    return null;
  }

  /** Take over the changes that an earlier visit has left. Where the draft has changed since, there is a conflict. */
  async takeLeft(): Promise<void> {
    const { left, document } = this.state;
    if (!left || !document || !this.stored) return;
    const mine = await drawnOf(this.readKept(left.document, this.stored));
    if (left.etag === this.stored.etag) this.apply("Take over unsaved changes", () => mine);
    else {
      const base = await drawnOf(this.readKept(left.base, this.stored));
      this.replace("Take over unsaved changes", mine);
      this.setConflict(base, mine, this.stored);
    }
    await this.dropLeft();
  }

  async dropLeft(): Promise<void> {
    const { left } = this.state;
    this.setState({ left: null });
    if (left) await this.unsaved.remove(left.id);
  }

  // -- changing --------------------------------------------------------------------------------------------------------
  /** Do a command. Changes in a row with the same key are undone together. Raises Refusal. */
  apply(name: string, command: (document: Document) => Document, key: string | null = null): void {
    const { document } = this.state;
    if (!document) throw new Refusal("The draft is not loaded yet.");
    const changed = command(document);
    if (changed === document) return;
    this.replace(name, changed, key);
    this.schedule();
  }

  /** End a step of undo: the next change is one of its own. */
  closeStep(): void {
    this.history.close();
  }

  undo(): string | null {
    return this.step(this.state.undo, this.history.undo());
  }

  redo(): string | null {
    return this.step(this.state.redo, this.history.redo());
  }

  private step(name: string | null, document: Document | null): string | null {
    if (!document) return null;
    this.setState({ document, ...this.historyNames() });
    this.schedule();
    return name;
  }

  private replace(name: string, document: Document, key: string | null = null): void {
    if (this.state.document) this.history.add(name, this.state.document, document, key);
    this.setState({ document, ...this.historyNames() });
  }

  private historyNames(): Pick<DraftState, "undo" | "redo"> {
    return this.history.names;
  }

  // -- saving ----------------------------------------------------------------------------------------------------------
  private get hasChanges(): boolean {
    return this.patch().length > 0;
  }

  /** Return what differs from the stored draft. Entries of `components` follow from the drawing and are left to the server. */
  private patch(): Patch {
    const { document } = this.state;
    const { stored } = this;
    if (!document || !stored || document === stored.drawn) return [];
    const origin = this.loaded.find((each) => each.drawn === document || isSameBut(each.drawn, document));
    const target = origin?.document ?? document;
    const { components } = stored.document;
    const patch = patchBetween(stored.document, components === undefined ? target : withMember(target, "components", components));
    const original = origin?.document.components;
    // back to what was loaded: its entries may have what no drawing says
    if (original === undefined || !patch.length) return patch;
    return [...patch.filter((operation) => operation.path !== "/components"), { op: "add", path: "/components", value: original }];
  }

  private schedule(): void {
    const { conflict, document } = this.state;
    if (conflict && document) {
      this.setState({ conflict: { ...conflict, merged: merge(conflict.base, document, conflict.theirs) } });
      this.keepSoon();
      return;
    }
    if (!this.hasChanges) {
      if (!this.saving) this.setState({ save: "saved", saveError: null });
      return;
    }
    if (this.state.save !== "offline") this.setState({ save: this.saving ? "saving" : "unsaved", saveError: null });
    this.keepSoon();
    const now = Date.now();
    this.changedSince ??= now;
    this.wake(Math.max(0, Math.min(AFTER_LAST_CHANGE_MS, this.changedSince + WHILE_CHANGING_MS - now)));
  }

  private wake(ms: number): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.save().catch(() => undefined), ms);
  }

  /** Save what has changed; resolve when the shown document is stored. Raises ApiError, or Refusal for a conflict. */
  async save(): Promise<void> {
    while (this.saving) await this.saving;
    if (this.state.conflict) throw new Refusal("The draft was changed elsewhere. Decide first which changes count.");
    if (!this.hasChanges) return;
    this.saving = this.send();
    try {
      await this.saving;
    } finally {
      this.saving = null;
    }
    if (this.state.conflict) throw new Refusal("The draft was changed elsewhere. Decide first which changes count.");
    if (this.hasChanges) this.schedule();
  }

  private async send(): Promise<void> {
    const { stored } = this;
    const sent = this.state.document;
    if (!stored || !sent) return;
    if (this.timer !== null) clearTimeout(this.timer);
    this.changedSince = null;
    this.setState({ save: "saving" });
    const patch = this.patch();
    try {
      const saved = patch.length > MAX_OPERATIONS ? await this.routes.putDraft(this.agentId, writeJson(sent), stored.etag) : await this.routes.patchDraft(this.agentId, writePatch(patch), stored.etag);
      this.failures = 0;
      this.stored = { ...this.storedAs(sent), etag: saved.etag };
      this.setState({ findings: saved.findings.map(findingOfReply), digest: saved.digest, save: this.hasChanges ? "unsaved" : "saved", saveError: null });
      if (!this.hasChanges) await this.unsaved.remove(this.pageId);
    } catch (error) {
      await this.afterFailure(asApiError(error), stored, sent);
    }
  }

  /** Return a document as the server has it now; entries are those that were loaded, since what it derives is not read. */
  private storedAs(document: Document): Omit<Stored, "etag"> {
    const origin = this.loaded.find((each) => each.drawn === document || isSameBut(each.drawn, document));
    return { document: origin?.document ?? document, drawn: document };
  }

  private async afterFailure(failure: ApiError, base: Stored, sent: Document): Promise<void> {
    if (failure.status === 412) {
      const theirs = await this.read().catch((error: unknown) => error);
      if (theirs === null || typeof theirs !== "object" || !("drawn" in theirs)) return this.retryLater(asApiError(theirs));
      await this.meet(base, theirs as Stored, sent);
      return;
    }
    if (failure.status === 0 || failure.status >= 500 || failure.status === 429) return this.retryLater(failure);
    this.setState({ save: "unsaved", saveError: failure.message });
    throw failure;
  }

  private retryLater(failure: ApiError): void {
    const delay = RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)] ?? 1000;
    this.failures += 1;
    this.setState({ save: failure.status === 0 ? "offline" : "unsaved", saveError: failure.message });
    if (!this.isStopped) this.wake(Math.max(delay, (failure.retryAfter ?? 0) * 1000));
    throw failure;
  }

  // -- conflicts -------------------------------------------------------------------------------------------------------
  private async meet(base: Stored, theirs: Stored, sent: Document): Promise<void> {
    if (isSameBut(theirs.drawn, sent)) {
      // the answer to our own save was lost
      this.stored = { ...theirs, drawn: sent };
      this.setState({ save: this.hasChanges ? "unsaved" : "saved", saveError: null });
      if (!this.hasChanges) await this.unsaved.remove(this.pageId);
      return;
    }
    this.setConflict(base.drawn, this.state.document ?? sent, theirs);
  }

  private setConflict(base: Document, mine: Document, theirs: Stored): void {
    this.loaded.push(theirs);
    this.setState({ save: "conflict", saveError: null, conflict: { base, theirs: theirs.drawn, etag: theirs.etag, merged: merge(base, mine, theirs.drawn) } });
    this.keepSoon();
  }

  /** Decide a conflict: `mine` is stored over the other draft, `theirs` is shown, `merge` joins both. */
  async decide(choice: "mine" | "theirs" | "merge"): Promise<void> {
    const { conflict, document } = this.state;
    if (!conflict || !document) return;
    const merged = merge(conflict.base, document, conflict.theirs);
    if (choice === "merge" && !merged) return;
    this.setState({ conflict: null });
    if (choice === "theirs") this.replace("Take over the other draft", conflict.theirs);
    if (choice === "merge" && merged) this.replace("Merge with the other draft", merged);
    if (this.hasChanges) {
      this.setState({ save: "unsaved" });
      await this.save();
    } else {
      this.setState({ save: "saved" });
      await this.unsaved.remove(this.pageId);
    }
  }

  // -- whole documents -------------------------------------------------------------------------------------------------
  /** Replace the draft by a document, bare or under `dsl`, as it is written. It can be undone. */
  async importText(text: string): Promise<void> {
    await this.replaceStored("Import", (etag) => this.routes.putDraft(this.agentId, text, etag));
  }

  async restore(versionId: string, key: string = newIdempotencyKey()): Promise<void> {
    await this.replaceStored("Restore a version", (etag) => this.routes.restoreVersion(this.agentId, versionId, etag, key));
  }

  private async replaceStored(name: string, replace: (etag: string) => Promise<SavedDraft>): Promise<void> {
    if (this.hasChanges) await this.save();
    while (this.saving) await this.saving;
    const { stored, state } = this;
    if (!stored || !state.document) return;
    try {
      await replace(stored.etag);
    } catch (error) {
      if (asApiError(error).status !== 412) throw error;
      const theirs = await this.read();
      await this.meet(stored, theirs, state.document);
      throw new Refusal("The draft was changed elsewhere meanwhile, so nothing was replaced.");
    }
    const fresh = await this.read();
    this.loaded.push(fresh);
    this.replace(name, fresh.drawn);
    this.setState({ save: "saved", saveError: null });
    await this.unsaved.remove(this.pageId);
  }

  /** Read the draft again, which has another ETag than the page knows. What was changed here meanwhile is a conflict. */
  async reload(): Promise<void> {
    while (this.saving) await this.saving;
    const { stored, state } = this;
    if (!stored || !state.document) return;
    const isMine = this.hasChanges;
    const theirs = await this.read();
    if (isMine) return this.meet(stored, theirs, state.document);
    this.loaded.push(theirs);
    if (!isSameBut(theirs.drawn, state.document)) this.replace("Take over the other draft", theirs.drawn);
  }

  notePublished(versionId: string, digest: string): void {
    this.setState({ published: { versionId, digest } });
  }

  /** The ETag of the draft that is stored, after what was changed is saved. */
  async savedEtag(): Promise<string> {
    for (let tries = 0; this.hasChanges && tries < 5; tries++) await this.save();
    return this.stored?.etag ?? "";
  }

  // -- what survives the page --------------------------------------------------------------------------------------------
  private keepSoon(): void {
    this.keeper ??= setTimeout(() => void this.keep(), KEEP_MS);
  }

  /** Keep what is not saved in this browser, but for secrets that were typed: it is stored in clear. */
  async keep(): Promise<void> {
    if (this.keeper !== null) clearTimeout(this.keeper);
    this.keeper = null;
    const { stored, state } = this;
    if (!stored || !state.document || !this.hasChanges) return;
    const base = state.conflict ? { text: state.conflict.base, etag: "" } : { text: stored.document, etag: stored.etag };
    const [kept, document] = [base.text, state.document].map((each) => writeJson(withoutSecrets(each, this.secretFields))) as [string, string];
    const lacksSecrets = differInSecrets(base.text, state.document, this.secretFields);
    await this.unsaved.write({ id: this.pageId, agentId: this.agentId, etag: base.etag, base: kept, document, lacksSecrets, at: Date.now() });
  }

  /** Return a document that was kept, with the secrets of the stored one: masked. */
  private readKept(text: string, stored: Stored): Document {
    return withSecretsOf(stored.document, objectOf(readJson(text)), this.secretFields);
  }

  private setState(change: Partial<DraftState>): void {
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener();
  }
}

/** Return a document with a drawing, which is not stored before the author changes something. */
async function drawnOf(document: Document): Promise<Document> {
  if (isDrawn(document)) return document;
  const complete = withNodes(document);
  const graph = graphOf(complete);
  return withPlaces(complete, graph, await computedLayout(graph));
}

/** Whether two documents are the same but for their entries, which follow from the drawing. */
function isSameBut(one: Document, other: Document): boolean {
  if (one === other) return true;
  const keys = new Set([...Object.keys(one), ...Object.keys(other)]);
  keys.delete("components");
  return [...keys].every((key) => isEqual(one[key], other[key]));
}

function findingOf(raw: Json): Finding {
  const { node, field, message, code, severity } = objectOf(raw);
  return { nodeId: typeof node === "string" ? node : null, field: typeof field === "string" ? field : null, message: textOf(message), code: textOf(code), severity: textOf(severity) };
}

function findingOfReply({ node, field, message, code, severity }: SavedDraft["findings"][number]): Finding {
  return { nodeId: node, field, message, code, severity };
}

function asApiError(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError(-1, "failed", error instanceof Error ? error.message : String(error));
}
