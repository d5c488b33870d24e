/** The draft that a page edits: autosave, conflicts, changes that survive. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { ApiError } from "../src/api/request";
import { addNode, addTool, changeForm, deleteNodes, moveNodes, renameNode } from "../src/editor/document/commands";
import { nodesOf, type Document } from "../src/editor/document/document";
import { isObject, objectOf, readJson, writeJson } from "../src/editor/document/json";
import { applyPatch, type Patch } from "../src/editor/document/patch";
import { DraftSession, type DraftRoutes } from "../src/editor/session/draft-session";
import type { UnsavedDraft, UnsavedStore } from "../src/editor/session/unsaved-store";
import { component, documentOf, TEXT } from "./editor-documents";

class Server implements DraftRoutes {
  document: Document;
  revision = 1;
  saves: string[] = [];
  /** What the next requests meet. */
  failures: (ApiError | "lost")[] = [];

  constructor(text: string = TEXT) {
    this.document = documentOf(text);
  }

  get etag(): string {
    return `"${this.revision}"`;
  }

  readDraft = (): Promise<string> => Promise.resolve(`{"document":${writeJson(this.document)},"etag":${JSON.stringify(this.etag)},"findings":[],"digest":"","published":null}`);
  patchDraft = (_: string, patch: string, etag: string) => this.store(etag, patch, () => applyPatch(this.document, readJson(patch) as unknown as Patch) as Document);
  putDraft = (_: string, text: string, etag: string) => this.store(etag, text, () => documentOf(text));
  restoreVersion = (_: string, versionId: string, etag: string) => this.store(etag, versionId, () => documentOf(TEXT));

  private store = async (etag: string, sent: string, change: () => Document): Promise<{ etag: string; digest: string; findings: [] }> => {
    await Promise.resolve();
    const failure = this.failures.shift();
    if (failure instanceof ApiError) throw failure;
    if (etag !== this.etag) throw new ApiError(412, "draft_changed", "changed");
    this.document = change();
    this.revision += 1;
    this.saves.push(sent);
    if (failure === "lost") throw new ApiError(0, "unreachable", "no answer");
    return { etag: this.etag, digest: "", findings: [] };
  };
}

class Kept implements UnsavedStore {
  drafts = new Map<string, UnsavedDraft>();
  find = (agentId: string): Promise<UnsavedDraft[]> => Promise.resolve([...this.drafts.values()].filter((draft) => draft.agentId === agentId));
  write = (draft: UnsavedDraft): Promise<void> => Promise.resolve(void this.drafts.set(draft.id, draft));
  remove = (id: string): Promise<void> => Promise.resolve(void this.drafts.delete(id));
}

async function opened(server = new Server(), kept = new Kept(), page = "page"): Promise<DraftSession> {
  const session = new DraftSession("agent", page, server, kept, (component) => (component === "TavilySearch" ? ["api_key"] : []));
  await session.load();
  return session;
}

const rename = (id: string, name: string) => (document: Document) => renameNode(document, id, name);
const nameIn = (document: Document | null, id: string): string | undefined => document ? nodesOf(document).get(id)?.name : undefined;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe("autosave", () => {
  it("comes a second after the last change, as one patch of what differs", async () => {
    const server = new Server();
    const session = await opened(server);
    for (const name of ["N", "Ne", "New"]) {
      session.apply("Rename", rename("LLM:One", name), "name");
      await vi.advanceTimersByTimeAsync(500);
    }
    expect([session.getState().save, server.saves]).toEqual(["unsaved", []]);

    await vi.advanceTimersByTimeAsync(600);

    expect([session.getState().save, server.saves]).toEqual(["saved", ['[{"op":"replace","path":"/graph/nodes/1/data/name","value":"New"}]']]);
    expect(writeJson(server.document)).toBe(TEXT.replaceAll("\n", "").replace('"name":"One"', '"name":"New"'));
  });

  it("comes at least every five seconds while the author goes on", async () => {
    const server = new Server();
    const session = await opened(server);
    for (let index = 0; index < 14; index++) {
      session.apply("Rename", rename("LLM:One", `n${index}`), "name");
      await vi.advanceTimersByTimeAsync(500);
    }
    expect(server.saves.length).toBe(1);
  });

  it("goes on when the API answers again", async () => {
    const server = new Server();
    const session = await opened(server);
    server.failures = [new ApiError(0, "unreachable", "no answer"), new ApiError(0, "unreachable", "no answer")];
    session.apply("Rename", rename("LLM:One", "New"));

    await vi.advanceTimersByTimeAsync(1100);
    expect(session.getState().save).toBe("offline");
    await vi.advanceTimersByTimeAsync(5000);

    expect([session.getState().save, nameIn(server.document, "LLM:One")]).toEqual(["saved", "New"]);
  });

  it("takes its own change for its own when the answer was lost", async () => {
    const server = new Server();
    const session = await opened(server);
    server.failures = ["lost"];
    session.apply("Rename", rename("LLM:One", "New"));
    await vi.advanceTimersByTimeAsync(5000);

    expect([session.getState().save, session.getState().conflict]).toEqual(["saved", null]);
  });

  it("sends nothing for what was undone before, and everything back after", async () => {
    const server = new Server();
    const session = await opened(server);
    session.apply("Delete", (document) => deleteNodes(document, ["LLM:One"]));
    session.undo();
    await vi.advanceTimersByTimeAsync(2000);
    expect(server.saves).toEqual([]);

    session.redo();
    await vi.advanceTimersByTimeAsync(2000);
    session.undo();
    await vi.advanceTimersByTimeAsync(2000);

    expect(server.saves.length).toBe(2);
    expect(writeJson(server.document)).toBe(TEXT.replaceAll("\n", ""));
  });

  it("stores a drawing with the first change only, and takes it back with it", async () => {
    const text = '{"components":{"begin":{"obj":{"component_name":"Begin","params":{}},"downstream":["Message:0"]},"Message:0":{"obj":{"component_name":"Message","params":{"content":["a"]}},"downstream":[]}}}';
    const server = new Server(text);
    const session = await opened(server);
    expect(nodesOf(session.getState().document ?? {}).size).toBe(2);
    await vi.advanceTimersByTimeAsync(3000);
    expect(server.saves).toEqual([]);

    session.apply("Move", (document) => moveNodes(document, ["begin"], 10, 0));
    await vi.advanceTimersByTimeAsync(2000);
    expect(nodesOf(server.document).size).toBe(2);

    session.undo();
    await vi.advanceTimersByTimeAsync(2000);
    expect(writeJson(server.document)).toBe(text);
  });

  it("says why a change is refused, and keeps it", async () => {
    const server = new Server();
    const session = await opened(server);
    server.failures = [new ApiError(413, "too_large", "The document has 9 bytes too many.")];
    session.apply("Rename", rename("LLM:One", "New"));
    await vi.advanceTimersByTimeAsync(20_000);

    expect([session.getState().save, session.getState().saveError]).toEqual(["unsaved", "The document has 9 bytes too many."]);
  });
});

describe("a draft that was changed elsewhere", () => {
  async function conflicting(mine: (document: Document) => Document): Promise<[Server, DraftSession]> {
    const server = new Server();
    const [session, other] = [await opened(server), await opened(server, new Kept(), "other")];
    other.apply("Rename", rename("Message:Two", "Theirs"));
    await vi.advanceTimersByTimeAsync(2000);
    session.apply("Rename", mine);
    await vi.advanceTimersByTimeAsync(2000);
    expect(session.getState().save).toBe("conflict");
    expect(nameIn(server.document, "LLM:One")).toBe("One");
    return [server, session];
  }

  it.each<["mine" | "theirs" | "merge", string, string]>([
    ["mine", "Mine", "Two"],
    ["theirs", "One", "Theirs"],
    ["merge", "Mine", "Theirs"],
  ])("is stored as decided: %s", async (choice, one, two) => {
    const [server, session] = await conflicting(rename("LLM:One", "Mine"));

    await session.decide(choice);

    const state = session.getState();
    expect([state.save, nameIn(state.document, "LLM:One"), nameIn(state.document, "Message:Two")]).toEqual(["saved", one, two]);
    expect([nameIn(server.document, "LLM:One"), nameIn(server.document, "Message:Two")]).toEqual([one, two]);
  });

  it("is not merged where both have changed the same node", async () => {
    const [, session] = await conflicting(rename("Message:Two", "Mine"));
    expect(session.getState().conflict?.merged).toBeNull();
  });

  it("can be had back after it was taken", async () => {
    const [server, session] = await conflicting(rename("LLM:One", "Mine"));
    await session.decide("theirs");
    session.undo();
    await vi.advanceTimersByTimeAsync(2000);

    expect([nameIn(server.document, "LLM:One"), nameIn(server.document, "Message:Two")]).toEqual(["Mine", "Two"]);
  });
});

describe("unsaved changes", () => {
  it("of a closed page are offered at the next visit and can be taken or dropped", async () => {
    const [server, kept] = [new Server(), new Kept()];
    const session = await opened(server, kept);
    session.apply("Rename", rename("LLM:One", "New"));
    await vi.advanceTimersByTimeAsync(300);
    session.stop();

    const next = await opened(server, kept, "next");
    expect(next.getState().left?.id).toBe("page");
    await next.takeLeft();
    await vi.advanceTimersByTimeAsync(2000);

    expect([nameIn(server.document, "LLM:One"), kept.drafts.size, next.getState().save]).toEqual(["New", 0, "saved"]);
    expect((await opened(server, kept, "third")).getState().left).toBeNull();
  });

  it("meet a draft that has changed since as a conflict", async () => {
    const [server, kept] = [new Server(), new Kept()];
    const session = await opened(server, kept);
    session.apply("Rename", rename("LLM:One", "New"));
    await vi.advanceTimersByTimeAsync(300);
    session.stop();
    const other = await opened(server, new Kept(), "other");
    other.apply("Rename", rename("Message:Two", "Theirs"));
    await vi.advanceTimersByTimeAsync(2000);

    const next = await opened(server, kept, "next");
    await next.takeLeft();
    expect(next.getState().save).toBe("conflict");
    await next.decide("merge");

    expect([nameIn(server.document, "LLM:One"), nameIn(server.document, "Message:Two")]).toEqual(["New", "Theirs"]);
  });

  it("are forgotten once they are saved", async () => {
    const kept = new Kept();
    const session = await opened(new Server(), kept);
    session.apply("Rename", rename("LLM:One", "New"));
    await vi.advanceTimersByTimeAsync(500);
    expect(kept.drafts.size).toBe(1);
    await vi.advanceTimersByTimeAsync(2000);
    expect(kept.drafts.size).toBe(0);
  });
});

describe("Secrets that were typed", () => {
  const SEARCH = component("TavilySearch", { api_key: "" });
  const KEY = "tvly-typed";
  const idOf = (document: Document, label: string): string => [...nodesOf(document).values()].find((node) => node.label === label)?.id ?? "";
  /** A document with a search, and an Agent that has it as a tool. */
  const withSearch = (document: Document): Document => {
    const { document: searched } = addNode(document, SEARCH, { x: 0, y: 0, parent: null });
    const { document: both, id } = addNode(searched, component("Agent", { tools: [] }), { x: 0, y: 0, parent: null });
    return addTool(both, id, SEARCH);
  };

  it("are not kept by the browser, and the next visit says so and has those that are stored", async () => {
    const [server, kept] = [new Server(), new Kept()];
    const searched = withSearch(server.document);
    server.document = changeForm(searched, idOf(searched, "TavilySearch"), { path: ["api_key"], value: "••••" });
    const session = await opened(server, kept);

    session.apply("key", (now) => changeForm(now, idOf(now, "TavilySearch"), { path: ["api_key"], value: KEY }));
    session.apply("tool", (now) => changeForm(now, idOf(now, "Agent"), { path: ["tools", 0, "params", "api_key"], value: KEY }));
    session.apply("name", rename("LLM:One", "New"));
    await session.keep();

    const [left] = [...kept.drafts.values()];
    expect([left?.lacksSecrets, left?.document.includes(KEY), left?.base.includes(KEY), left?.document.includes("New")]).toEqual([true, false, false, true]);

    const next = await opened(server, kept, "next");
    await next.takeLeft();
    const taken = next.getState().document ?? {};
    expect([nameIn(taken, "LLM:One"), nodesOf(taken).get(idOf(taken, "TavilySearch"))?.form.api_key]).toEqual(["New", "••••"]);
  });

  it("are not kept after they were saved either", async () => {
    const [server, kept] = [new Server(), new Kept()];
    server.document = withSearch(server.document);
    const session = await opened(server, kept);
    session.apply("key", (now) => changeForm(now, idOf(now, "TavilySearch"), { path: ["api_key"], value: KEY }));
    await session.save();

    session.apply("name", rename("LLM:One", "New"));
    await session.keep();

    const [left] = [...kept.drafts.values()];
    expect([left?.lacksSecrets, left?.document.includes(KEY), left?.base.includes(KEY)]).toEqual([false, false, false]);
  });
});

describe("an import", () => {
  it("replaces the draft as it is written, and can be undone", async () => {
    const server = new Server();
    const session = await opened(server);
    await session.importText('{"graph":{"nodes":[{"id":"begin","position":{"x":1.0,"y":2},"data":{"label":"Begin","name":"b","form":{}}}],"edges":[]},"other":1.50}');
    expect([session.getState().save, isObject(server.document.graph), writeJson(server.document).includes("1.50")]).toEqual(["saved", true, true]);

    session.undo();
    await vi.advanceTimersByTimeAsync(2000);
    expect(objectOf(server.document)).toEqual(documentOf(TEXT));
  });
});
