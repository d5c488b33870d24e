/**
 * A conversation over a share link, without React: it sends turns, follows their events, and continues after a lost
 * connection or a reload. Of it only the id of the session and the values of the first form stay in the tab.
 */
import { filesOf, sourcesOf } from "../answer/message-end";
import { speechPath } from "../answer/speech";
import { ApiError, newIdempotencyKey } from "../api/request";
import { ShareLink, type EventReader, type SharedAgent, type SharedSession, type SharedTurn, type TurnRequest } from "../api/share-link";
import type { ServerSentEvent } from "../api/server-sent-events";
import type { Answers } from "../api/runs";
import { Backoff } from "../live/backoff";
import { formsOf, isObject } from "../run-file/rows";
import type { FormField, OpenForm } from "../store/run";
import { tabMemory, type TabMemory } from "./tab-memory";
import { isClosed, newTurn, withEvent, type ChatTurn, type Question, type TurnStatus } from "./turns";

/** Why a chat cannot go on, or a request of it has failed. */
export type ProblemKind = "revoked" | "deleted" | "unpublished" | "busy" | "limited" | "away" | "other";

export interface Problem {
  kind: ProblemKind;
  message: string;
  retryAfter: number | null;
}

export interface ChatAgent {
  title: string;
  avatar: string | null;
  greeting: string;
  /** The form before the chat; null if there is none. */
  form: OpenForm | null;
  isTask: boolean;
}

export type FormValues = Readonly<Record<string, unknown>>;

export interface ConversationState {
  agent: ChatAgent | null;
  turns: readonly ChatTurn[];
  /** Whether earlier turns are not shown. */
  isCut: boolean;
  /** What was entered into the form before the chat; null while it is open. */
  values: FormValues | null;
  isLoading: boolean;
  /** Whether the API does not answer at the moment. */
  isAway: boolean;
  problem: Problem | null;
}

interface Remembered {
  session: string | null;
  values: FormValues | null;
}

const FLUSH_MS = 50;
const ENDS: readonly ProblemKind[] = ["revoked", "deleted", "unpublished"];

/** Return whether nothing more can be done with the link. */
export function isFinal(problem: Problem | null): boolean {
  return problem !== null && ENDS.includes(problem.kind);
}

export class Conversation {
  private state: ConversationState = { agent: null, turns: [], isCut: false, values: null, isLoading: true, isAway: false, problem: null };
  private readonly listeners = new Set<() => void>();
  private stopped = new AbortController();
  private connection: AbortController | null = null;
  private sessionId: string | null = null;
  private runId: string | null = null;
  private position = "0";
  private isStopWanted = false;
  private waiting: Record<string, unknown>[] = [];
  private flushTimer: ReturnType<typeof setTimeout> | null = null;

  constructor(
    private readonly link: ShareLink,
    private readonly memory: TabMemory = tabMemory,
  ) {}

  readonly getState = (): ConversationState => this.state;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Read the agent and the conversation that this tab had; call it again to try again. */
  async load(): Promise<void> {
    this.stopped = new AbortController();
    this.set({ isLoading: true, problem: null });
    try {
      const agent = agentOf(await this.link.readAgent());
      const { session, values } = this.recall();
      this.set({ agent, values: agent.form === null ? {} : usableValues(agent.form, values) });
      if (session !== null) await this.loadSession(session);
      this.set({ isLoading: false });
    } catch (error) {
      if (!this.isStopped) this.set({ isLoading: false, problem: problemOf(error) });
    }
  }

  close(): void {
    this.stopped.abort();
    this.connection?.abort();
    if (this.flushTimer !== null) clearTimeout(this.flushTimer);
    this.flushTimer = null;
  }

  /** Send a message of the user; return whether it was accepted. */
  async send(text: string, files: readonly { name: string; descriptor: unknown }[]): Promise<boolean> {
    const { values, agent } = this.state;
    const question: Question = { text, files: files.map((file) => file.name), values: [] };
    const request: TurnRequest = {
      query: text,
      ...(files.length ? { files: files.map((file) => file.descriptor) } : {}),
      ...(values && agent?.form ? { inputs: values } : {}),
    };
    try {
      await this.begin(question, request, newIdempotencyKey(), { isShownAtOnce: true });
      return true;
    } catch (error) {
      this.set({ problem: problemOf(error) });
      return false;
    }
  }

  /** Take the values of the form before the chat; an agent that takes no messages starts with them. */
  async fillIn(form: OpenForm, answers: Answers, key: string): Promise<void> {
    const values = typedValues(form, answers.inputs ?? {});
    if (this.state.agent?.isTask) {
      const question: Question = { text: "", files: [], values: shownValues(form, answers.inputs ?? {}) };
      await this.begin(question, { query: "", inputs: values }, key, { isShownAtOnce: false });
    }
    this.set({ values });
    this.remember();
  }

  /** Open the form before the chat again. */
  changeValues(): void {
    this.set({ values: null });
  }

  /** Answer the open form of the last turn. Raises ApiError if the answer is refused. */
  async answer(form: OpenForm, answers: Answers, key: string): Promise<void> {
    const given = answers.inputs ?? {};
    await this.begin({ text: "", files: [], values: shownValues(form, given) }, { inputs: typedValues(form, given) }, key, { isShownAtOnce: false });
  }

  /** Cancel the run of the last turn. */
  async stop(): Promise<void> {
    this.isStopWanted = true;
    if (this.runId === null) return; // it is cancelled once its id is known
    try {
      await this.link.cancel(this.runId);
      const last = this.state.turns.at(-1);
      if (last?.status === "waiting") this.change((turn) => ({ ...turn, status: "stopped", forms: [] }));
    } catch (error) {
      this.set({ problem: problemOf(error) });
    } finally {
      this.isStopWanted = false;
    }
  }

  /** Forget this conversation and begin another. */
  restart(): void {
    this.connection?.abort();
    this.connection = null;
    this.sessionId = null;
    this.runId = null;
    const { agent } = this.state;
    this.set({ turns: [], isCut: false, problem: null, isAway: false, values: agent?.isTask && agent.form ? null : this.state.values });
    this.remember();
  }

  dismissProblem(): void {
    this.set({ problem: null });
  }

  upload(file: File): Promise<unknown> {
    return this.link.upload(file, newIdempotencyKey());
  }

  readonly download = (path: string): Promise<Blob> => this.link.download(path);

  private get isStopped(): boolean {
    return this.stopped.signal.aborted;
  }

  /**
   * Begin a turn; resolves when the server has accepted it, and raises ApiError if it refuses. The answers of a form
   * become a turn only then, so that a form that is refused stays as it is.
   */
  private begin(question: Question, request: TurnRequest, key: string, { isShownAtOnce }: { isShownAtOnce: boolean }): Promise<void> {
    const show = (): void => {
      const closed = this.state.turns.map((turn) => (turn.forms.length ? { ...turn, forms: [], status: "done" as const } : turn));
      this.set({ turns: [...closed, newTurn(key, question)] });
    };
    this.set({ problem: null });
    if (isShownAtOnce) show();
    this.position = "0";
    this.runId = null;
    this.isStopWanted = false;
    return new Promise((resolve, reject) => {
      const onAccepted = (): void => {
        if (!isShownAtOnce) show();
        resolve();
      };
      void this.run({ ...request, ...(this.sessionId === null ? {} : { session_id: this.sessionId }) }, key, onAccepted).catch((error: unknown) => {
        if (this.runId === null) this.set({ isAway: false, turns: this.state.turns.filter((turn) => turn.key !== key) });
        reject(error instanceof Error ? error : new Error(String(error)));
      });
    });
  }

  private async run(request: TurnRequest, key: string, onAccepted: () => void): Promise<void> {
    const connection = new AbortController();
    this.connection = connection;
    const reader: EventReader = {
      signal: connection.signal,
      onIds: ({ runId, sessionId }) => {
        this.runId = runId;
        this.sessionId = sessionId;
        this.remember();
        onAccepted();
        this.change((turn) => (turn.status === "sending" ? { ...turn, status: "running" } : turn));
        if (this.isStopWanted) void this.stop();
      },
      onEvents: (events) => this.receive(events),
    };
    const backoff = new Backoff();
    for (;;) {
      try {
        await (this.runId === null ? this.link.complete(request, key, reader) : this.link.follow(this.runId, this.position, reader));
        this.flush();
        if (isClosed(this.state.turns.at(-1) ?? newTurn("", null))) break;
      } catch (error) {
        this.flush();
        if (connection.signal.aborted) return;
        if (!(error instanceof ApiError) || (error.status !== 0 && error.status < 500)) {
          if (this.runId !== null) this.failTurn(error);
          throw error;
        }
        this.set({ isAway: true });
        await pause(backoff.fail(error.retryAfter), connection.signal);
        if (connection.signal.aborted) return;
        if (this.isStopWanted && this.runId === null) {
          this.isStopWanted = false; // it was never accepted, and its user does not want it any more
          throw error;
        }
        continue;
      }
      await pause(backoff.fail(), connection.signal); // the stream ended early: another process may have the rest
      if (connection.signal.aborted) return;
    }
    this.set({ isAway: false });
    this.connection = null;
  }

  private failTurn(error: unknown): void {
    const problem = problemOf(error);
    if (isFinal(problem)) this.set({ problem });
    this.change((turn) => ({ ...turn, status: "failed", error: problem.message }));
  }

  private async loadSession(sessionId: string): Promise<void> {
    let session: SharedSession;
    try {
      session = await this.link.readSession(sessionId);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      this.restart(); // it was deleted, or belongs to another link
      return;
    }
    this.sessionId = session.id;
    const turns = session.turns.map((turn, place) => turnOf(turn, `${session.id} ${place}`));
    this.set({ turns, isCut: session.is_cut });
    if (session.run) this.continueRun(session.run.id, session.run.after);
  }

  /** Follow a run that goes on, or that waits: its last turn is made of its events. */
  private continueRun(runId: string, after: string): void {
    this.runId = runId;
    this.position = after;
    this.change((turn) => ({ ...turn, status: "running" }));
    void this.run({}, "", () => undefined).catch(() => undefined); // the turn says what is wrong
  }

  private receive(events: readonly ServerSentEvent[]): void {
    if (this.state.isAway) this.set({ isAway: false });
    for (const event of events) {
      if (event.data === "[DONE]") continue;
      const envelope: unknown = JSON.parse(event.data);
      if (!isObject(envelope)) continue;
      if (envelope.code === 401) throw new ApiError(401, "unauthorized", typeof envelope.message === "string" ? envelope.message : "");
      if (event.id !== null) this.position = event.id;
      this.waiting.push(envelope);
    }
    this.flushTimer ??= setTimeout(() => this.flush(), FLUSH_MS);
  }

  private flush(): void {
    if (this.flushTimer !== null) clearTimeout(this.flushTimer);
    this.flushTimer = null;
    const ready = this.waiting;
    this.waiting = [];
    if (ready.length) this.change((turn) => ready.reduce(withEvent, turn));
  }

  private change(change: (turn: ChatTurn) => ChatTurn): void {
    const last = this.state.turns.at(-1);
    if (last) this.set({ turns: [...this.state.turns.slice(0, -1), change(last)] });
  }

  private set(change: Partial<ConversationState>): void {
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener();
  }

  // -- what stays in the tab: neither the token nor a password ---------------------------------------------------------
  private get memoryKey(): string {
    return `easel.chat.${this.link.agentId}`;
  }

  private remember(): void {
    const secret = new Set(this.state.agent?.form?.fields.filter((field) => field.type === "password").map((field) => field.key));
    const values = this.state.values && Object.fromEntries(Object.entries(this.state.values).filter(([key]) => !secret.has(key)));
    this.memory.write(this.memoryKey, JSON.stringify({ session: this.sessionId, values } satisfies Remembered));
  }

  private recall(): Remembered {
    try {
      const stored: unknown = JSON.parse(this.memory.read(this.memoryKey) ?? "null");
      if (!isObject(stored)) return { session: null, values: null };
      const session = typeof stored.session === "string" && /^[0-9a-f]{32}$/.test(stored.session) ? stored.session : null;
      return { session, values: isObject(stored.values) ? stored.values : null };
    } catch {
      return { session: null, values: null };
    }
  }
}

function agentOf(agent: SharedAgent): ChatAgent {
  const [form] = formsOf({ forms: { begin: { inputs: agent.inputs } } });
  return {
    title: agent.title ?? "",
    avatar: agent.avatar,
    greeting: agent.prologue ?? "",
    form: form?.fields.length ? form : null,
    isTask: agent.mode === "task",
  };
}

/** Return the values of an earlier visit if they fill the form, null if something required is missing. */
function usableValues(form: OpenForm, values: FormValues | null): FormValues | null {
  return values !== null && form.fields.every((field) => field.isOptional || field.key in values) ? values : null;
}

/** Return answers with the types of their fields, which the API needs to read them. */
function typedValues(form: OpenForm, given: FormValues): FormValues {
  const fields = new Map(form.fields.map((field) => [field.key, field]));
  return Object.fromEntries(
    Object.entries(given).map(([key, value]) => {
      const field = fields.get(key);
      if (!field || (isObject(value) && "type" in value && "value" in value)) return [key, value];
      return [key, { type: field.type, value, optional: field.isOptional }];
    }),
  );
}

function shownValues(form: OpenForm, given: FormValues): [string, string][] {
  return form.fields.flatMap((field): [string, string][] => (field.key in given ? [[field.name, shownValue(field, given[field.key])]] : []));
}

function shownValue(field: FormField, value: unknown): string {
  if (field.type === "password") return "••••";
  if (typeof value === "boolean") return value ? "yes" : "no";
  const inner = isObject(value) && isObject(value.value) ? value.value : value;
  if (isObject(inner) && typeof inner.name === "string") return inner.name;
  return typeof value === "string" || typeof value === "number" ? String(value) : JSON.stringify(value);
}

const STATUSES: Readonly<Record<string, TurnStatus>> = { failed: "failed", refused: "failed", cancelled: "stopped" };

/** Return a turn as the API stores it; that of a run that goes on is made of its events afterwards. */
function turnOf(turn: SharedTurn, key: string): ChatTurn {
  const question: Question = { text: questionText(turn.question), files: [], values: [] };
  return {
    key,
    question,
    answers: turn.answers.map((answer, place) => ({
      id: answer.id ?? `${key} ${place}`,
      text: answer.content.replaceAll("<think>", "\ufdd0").replaceAll("</think>", "\ufdd1"),
      files: filesOf({ downloads: answer.downloads, attachment: answer.attachment }),
      speech: (answer.audio ?? []).map((id, place) => ({ offset: place, source: speechPath(id) })),
      isOpen: false,
    })),
    sources: sourcesOf(turn.reference),
    forms: [],
    status: STATUSES[turn.status ?? ""] ?? "done",
    error: turn.error || null,
  };
}

function questionText(question: unknown): string {
  if (typeof question === "string") return question;
  if (question === null || question === undefined) return "";
  return isObject(question) && typeof question.query === "string" ? question.query : JSON.stringify(question);
}

export function problemOf(error: unknown): Problem {
  if (!(error instanceof ApiError)) return { kind: "other", message: error instanceof Error ? error.message : String(error), retryAfter: null };
  return { kind: kindOf(error), message: error.message, retryAfter: error.retryAfter };
}

function kindOf({ status, message }: ApiError): ProblemKind {
  if (status === 0 || status >= 500) return "away";
  if (status === 401) return "revoked";
  if (status === 409) return "busy";
  if (status === 429) return "limited";
  if (message.startsWith("Can't find agent") || message.startsWith("Make sure you have permission")) return "deleted";
  return message.startsWith("No available published version") ? "unpublished" : "other";
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done);
  });
}
