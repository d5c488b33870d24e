/**
 * A run as it is now: reads it once and then follows its live stream into a store. Where there is no stream it polls;
 * a tab that is hidden polls only the status, and one of a share nothing. Counts of the server are the checksum of the rows.
 */
import { readLiveStream } from "../api/live-stream";
import type { ActivationList, Run } from "../api/replies";
import { ApiError, reportSignedOut } from "../api/request";
import * as api from "../api/runs";
import type { ServerSentEvent } from "../api/server-sent-events";
import { isObject } from "../run-file/rows";
import { differingNodes } from "../store/checksum";
import { continuesText, type Frame } from "../store/run";
import { isOver } from "../store/run-status";
import type { RunStore } from "../store/run-store";
import { Backoff } from "./backoff";
import { takeFirstRead } from "./first-read";
import * as frames from "./live-frames";
import { ServerClock } from "../api/server-clock";

/** How a page is kept up to date. `away`: the API does not answer. `off`: the run is over. */
export type LiveMode = "stream" | "polling" | "off" | "away";

export interface LiveStatus {
  mode: LiveMode;
  /** Whether header and graph are known. */
  isLoaded: boolean;
  /** Whether the rows are known too. */
  isComplete: boolean;
  /** Why nothing can be shown, or why nothing new arrives. */
  error: ApiError | null;
}

const FLUSH_MS = 40;
const TICK_MS = 1000;
const SIDE_LISTS_MS = 2000;
const POLL_MS = 3000;
const HIDDEN_AFTER_MS = 20_000;
const HIDDEN_POLL_MS = 15_000;
const STREAM_AGAIN_MS = 60_000;
const MAX_ROWS = 20_000; // of a run with more, the steps outside of containers are loaded, and what changes
const NO_STREAM = [404, 406, 501]; // an older server, or a proxy

class TextGap extends Error {}

export class LiveRun {
  private status: LiveStatus = { mode: "away", isLoaded: false, isComplete: false, error: null };
  private readonly listeners = new Set<() => void>();
  private readonly stopped = new AbortController();
  private readonly clock = new ServerClock();
  private readonly backoff = new Backoff();
  private readonly breaks = new Backoff(); // of streams that had begun: a proxy may cut each after a while
  private connection: AbortController | null = null;
  private waiting: Frame[] = [];
  private flushTimer: ReturnType<typeof setTimeout> | null = null;
  private hiddenTimer: ReturnType<typeof setTimeout> | null = null;
  private ticker: ReturnType<typeof setInterval> | null = null;
  private position = "0";
  private revision = 0;
  private suspects: ReadonlySet<string> = new Set();
  private attemptsAfter: string | undefined;
  private toolCallsAfter: string | undefined;
  private sideListsAt = 0;
  private isReadingHeader = false;
  private isHeaderStale = false;
  private hasEnded = false;

  constructor(
    readonly runId: string,
    private readonly store: RunStore,
    /** Whether a share is open: its visitors cannot read the states of runs, so a hidden tab asks for nothing. */
    private readonly isShare = false,
  ) {}

  readonly getStatus = (): LiveStatus => this.status;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  start(): void {
    this.ticker = setInterval(() => this.tick(), TICK_MS);
    document.addEventListener("visibilitychange", this.onVisibility);
    void this.run();
  }

  stop(): void {
    this.stopped.abort();
    this.connection?.abort();
    if (this.ticker !== null) clearInterval(this.ticker);
    if (this.flushTimer !== null) clearTimeout(this.flushTimer);
    if (this.hiddenTimer !== null) clearTimeout(this.hiddenTimer);
    document.removeEventListener("visibilitychange", this.onVisibility);
  }

  /** Read the header again, for example after an action. */
  async refresh(): Promise<void> {
    this.isHeaderStale = true;
    if (this.isReadingHeader) return;
    this.isReadingHeader = true;
    try {
      while (this.isHeaderStale && !this.isStopped) {
        this.isHeaderStale = false;
        this.applyRun(await api.readRun(this.runId, this.stopped.signal));
      }
    } catch {
      // the stream or the next poll says what is wrong
    } finally {
      this.isReadingHeader = false;
    }
  }

  /** Load the rows that were left out because there are so many; each page is shown as it comes. */
  async loadAllRows(): Promise<void> {
    await this.readSteps((after) => api.listActivations(this.runId, { after }, this.stopped.signal));
    const { rows } = this.store.getState();
    this.store.apply([{ type: "rows", rows: { ...rows, isPartial: false } }]);
  }

  /** Load the rows of one item of a container. */
  async loadItem(entry: string, item: number): Promise<void> {
    await this.readSteps((after) =>
      api.listActivations(this.runId, { within: entry, items: `${item}-${item}`, after }, this.stopped.signal),
    );
  }

  private get isStopped(): boolean {
    return this.stopped.signal.aborted;
  }

  private async run(): Promise<void> {
    while (!this.isStopped && !(await this.open())) {
      // it has waited for the next try
    }
    let streamAgainAt = 0;
    while (!this.isStopped && !this.hasEnded) {
      if (document.hidden && this.connection === null) await this.pollHidden();
      else if (performance.now() >= streamAgainAt) streamAgainAt = await this.stream();
      else await this.poll();
    }
  }

  /** Read what the first picture needs; return whether that is done. */
  private async open(): Promise<boolean> {
    const { signal } = this.stopped;
    try {
      const { run, graph } = await takeFirstRead(this.runId, signal);
      if (graph) this.store.apply([frames.frameOfGraph(graph)]);
      const total = run.activations_total ?? 0;
      const isPartial = total > MAX_ROWS;
      if (isPartial) {
        this.store.apply([{ type: "rows", rows: { isPartial, total } }]);
        this.revision = run.revision ?? 0;
      }
      this.applyRun(run);
      if (isPartial) await this.readSteps((after) => api.listTopActivations(this.runId, after, signal));
      this.setStatus({ isLoaded: true, error: null, mode: isOver(run.status) ? "off" : "stream" });
      return true;
    } catch (error) {
      if (this.isStopped) return false;
      const failure = asApiError(error);
      this.setStatus({ error: failure, mode: "away" });
      if (failure.status === 404 || failure.status === 401 || failure.status === 403 || failure.status === 400) this.stop();
      else await this.pause(this.backoff.fail(failure.retryAfter));
      return false;
    }
  }

  private applyRun(run: Run): void {
    this.clock.note(run.now ?? 0);
    this.store.apply(frames.framesOfRun(run));
  }

  /** Follow the stream until it ends; return when to try it again, by the performance clock. */
  private async stream(): Promise<number> {
    const connection = new AbortController();
    this.connection = connection;
    let hasBegun = false;
    try {
      await readLiveStream(this.runId, {
        after: this.position,
        revision: this.revision,
        signal: connection.signal,
        onEvents: (events) => {
          hasBegun = true;
          this.receive(events);
        },
      });
      if (!this.hasEnded) await this.pause(this.backoff.fail());
      return 0;
    } catch (error) {
      if (this.isStopped || connection.signal.aborted) return 0;
      if (error instanceof TextGap) {
        this.position = this.position.replace(/\..*/, ""); // the text is sent from its beginning
        return 0;
      }
      const failure = asApiError(error);
      return hasBegun && failure.code === "unreachable" ? await this.afterBreak() : await this.afterFailure(failure);
    } finally {
      connection.abort();
      this.connection = null;
      this.flush();
    }
  }

  /** A stream broke off: the next one continues it, and only if that cannot be had, the page says so. */
  private async afterBreak(): Promise<number> {
    const delay = this.breaks.fail();
    if (this.breaks.isHopeless) {
      this.breaks.forget();
      return performance.now() + STREAM_AGAIN_MS;
    }
    await this.pause(delay);
    return 0;
  }

  private async afterFailure(failure: ApiError): Promise<number> {
    if (failure.status === 401) {
      this.stop();
      return 0;
    }
    if (NO_STREAM.includes(failure.status) || failure.code === "no_first_byte") return Number.POSITIVE_INFINITY;
    if (failure.code === "too_many_streams") return performance.now() + (failure.retryAfter ?? 10) * 1000;
    this.setStatus({ mode: "away", error: failure });
    const delay = this.backoff.fail(failure.retryAfter);
    if (this.backoff.isHopeless && failure.code !== "unreachable") {
      this.backoff.forget();
      return performance.now() + STREAM_AGAIN_MS;
    }
    await this.pause(delay);
    return 0;
  }

  private receive(events: readonly ServerSentEvent[]): void {
    this.backoff.succeed();
    this.breaks.succeed();
    if (this.status.mode !== "stream" && !this.isOver) this.setStatus({ mode: "stream", error: null });
    for (const event of events) {
      const data: unknown = JSON.parse(event.data);
      if (!isObject(data)) continue;
      if (typeof data.now === "number") this.clock.note(data.now);
      this.receiveOne(event.name, data);
      if (event.id !== null) this.position = event.id;
    }
  }

  private receiveOne(name: string, data: Readonly<Record<string, unknown>>): void {
    switch (name) {
      case "event":
        this.queue(...frames.framesOfEvent(data));
        if (data.event === "user_inputs") void this.refresh();
        return;
      case "delta": {
        const delta = frames.deltaOf(data);
        if (!delta) return;
        this.flushTextOf(delta.stepId);
        if (!continuesText(this.store.getState(), delta)) throw new TextGap();
        this.queue({ type: "delta", delta });
        return;
      }
      case "reset":
        if (typeof data.stream === "string" && typeof data.retained_length === "number") {
          this.queue({ type: "reset", stepId: data.stream, retainedLength: data.retained_length });
        }
        return;
      case "steps":
        if (!frames.isStepList(data)) return;
        this.queue({ type: "steps", steps: frames.stepsOf(data) });
        this.revision = data.revision;
        return;
      case "call":
        if (Array.isArray(data.calls)) this.queue(frames.frameOfModelCalls(data.calls));
        return;
      case "state":
        this.receiveState(data);
        return;
      case "bye":
        this.receiveBye(data);
        return;
      default:
        return; // `hello`, which repeats what was read, and frames of a newer server
    }
  }

  private receiveState(data: Readonly<Record<string, unknown>>): void {
    const before = this.store.getState().header?.status;
    this.queue(...frames.framesOfState(data), { type: "clock", now: this.clock.now() });
    this.flush();
    if (!this.status.isComplete) this.setStatus({ isComplete: true });
    if (typeof data.status === "string" && data.status !== before) void this.refresh();
    void this.checkRows();
    void this.readSideLists();
  }

  private receiveBye(data: Readonly<Record<string, unknown>>): void {
    this.flush();
    if (data.reason === "over") void this.finish();
    else if (data.reason === "signed_out" || data.reason === "share_revoked") {
      this.hasEnded = true;
      this.stop();
      reportSignedOut();
    } else this.setStatus({ mode: "away" }); // it is shutting down: another process answers soon
  }

  /** The run is over: read its header and lists once more, and stop. */
  private async finish(): Promise<void> {
    this.hasEnded = true;
    this.sideListsAt = 0;
    await Promise.all([this.refresh(), this.readSideLists()]);
    this.flush();
    this.setStatus({ mode: "off", error: null, isComplete: true });
    if (this.ticker !== null) clearInterval(this.ticker);
  }

  /** Reload the nodes whose rows differ from the counts of two states in a row. */
  private async checkRows(): Promise<void> {
    if (this.store.getState().rows.isPartial) return;
    const differing = differingNodes(this.store.getState());
    const wrong = differing.filter((nodeId) => this.suspects.has(nodeId));
    this.suspects = new Set(differing.filter((nodeId) => !wrong.includes(nodeId)));
    if (!wrong.length) return;
    try {
      await this.readSteps((after) => api.listActivations(this.runId, { node_id: wrong.join(","), after }, this.stopped.signal));
    } catch {
      // the next two states find it again
    }
  }

  /** Read pages of steps into the store; return the revision of the first page. */
  private async readSteps(readPage: (after: string | undefined) => Promise<ActivationList>): Promise<number> {
    let after: string | undefined;
    let revision: number | null = null;
    do {
      const page = await readPage(after);
      this.clock.note(page.now);
      this.store.apply([{ type: "steps", steps: frames.stepsOf(page) }]);
      revision ??= page.revision;
      after = page.next ?? undefined;
    } while (after !== undefined);
    return revision;
  }

  /** Read attempts and tool calls that were stored since, where steps can have any. */
  private async readSideLists(): Promise<void> {
    if (performance.now() < this.sideListsAt) return;
    this.sideListsAt = performance.now() + SIDE_LISTS_MS;
    const { steps } = this.store.getState();
    const rows = Array.from({ length: steps.count }, (_, row) => row);
    const { signal } = this.stopped;
    try {
      if (rows.some((row) => (steps.number(row, "attempt") ?? 0) > 1)) {
        for (let more = true; more; ) {
          const list = await api.listAttempts(this.runId, this.attemptsAfter, signal);
          this.queue(frames.frameOfAttempts(list));
          more = list.next !== null;
          this.attemptsAfter = list.next ?? this.attemptsAfter;
        }
      }
      if (rows.some((row) => steps.text(row, "component") === "Agent")) {
        for (let more = true; more; ) {
          const list = await api.listToolCalls(this.runId, this.toolCallsAfter, signal);
          this.queue(frames.frameOfToolCalls(list));
          more = list.next !== null;
          this.toolCallsAfter = list.next ?? this.toolCallsAfter;
        }
      }
    } catch {
      // read again with the next state
    }
  }

  private async poll(): Promise<void> {
    const { signal } = this.stopped;
    try {
      const run = await api.readRun(this.runId, signal);
      const since = this.revision || undefined;
      this.revision = await this.readSteps((after) => api.listActivations(this.runId, { since, after }, signal));
      await this.readEvents();
      const calls = await api.listModelCalls(this.runId, undefined, signal);
      this.queue(frames.frameOfModelCalls(calls.calls));
      this.applyRun(run);
      await this.readSideLists();
      this.flush();
      this.setStatus({ mode: "polling", error: null, isComplete: true });
      if (isOver(run.status)) return await this.finish();
      this.backoff.forget();
      await this.pause(POLL_MS);
    } catch (error) {
      if (this.isStopped) return;
      const failure = asApiError(error);
      this.setStatus({ mode: "away", error: failure });
      await this.pause(this.backoff.fail(failure.retryAfter));
    }
  }

  /** Read events and the text between them after the position. */
  private async readEvents(): Promise<void> {
    for (;;) {
      const page = await api.listEvents(this.runId, this.position, this.stopped.signal);
      for (const envelope of page.events) {
        if (typeof envelope.seq === "number" && envelope.event !== "message") this.queue(...frames.framesOfEvent(envelope));
        else this.queueMessage(envelope);
      }
      this.position = page.position;
      if (!page.events.length) return;
    }
  }

  private queueMessage(envelope: Readonly<Record<string, unknown>>): void {
    const body = isObject(envelope.data) ? envelope.data : {};
    const marker = body.start_to_think === true ? "\ufdd0" : body.end_to_think === true ? "\ufdd1" : "";
    const text = typeof body.content === "string" ? body.content : "";
    const step = typeof envelope.turn === "string" ? this.store.getState().steps.find(envelope.turn) : null;
    const delta = frames.deltaOf({ stream: envelope.turn, node_id: step?.nodeId, offset: envelope.offset, text: marker + text });
    if (delta) this.queue({ type: "delta", delta });
  }

  private async pollHidden(): Promise<void> {
    if (this.isShare) return await this.pause(HIDDEN_POLL_MS);
    try {
      const { runs, now } = await api.readRunStates([this.runId], {}, undefined, this.stopped.signal);
      this.clock.note(now);
      const status = runs[0]?.status;
      if (status !== undefined) this.store.apply([{ type: "status", status }]);
    } catch {
      // read again in a moment
    }
    await this.pause(HIDDEN_POLL_MS);
  }

  private readonly onVisibility = (): void => {
    if (this.hiddenTimer !== null) clearTimeout(this.hiddenTimer);
    this.hiddenTimer = document.hidden ? setTimeout(() => this.connection?.abort(), HIDDEN_AFTER_MS) : null;
    if (!document.hidden) this.wake?.();
  };

  private wake: (() => void) | null = null;

  /** Wait; less if the page is stopped or becomes visible again. */
  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.wake = null;
        this.stopped.signal.removeEventListener("abort", done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.wake = done;
      this.stopped.signal.addEventListener("abort", done);
    });
  }

  private get isOver(): boolean {
    return isOver(this.store.getState().header?.status ?? "");
  }

  private tick(): void {
    if (!this.isOver && this.clock.now() && !document.hidden) this.store.apply([{ type: "clock", now: this.clock.now() }]);
  }

  private queue(...added: readonly Frame[]): void {
    this.waiting.push(...added);
    this.flushTimer ??= setTimeout(() => this.flush(), FLUSH_MS);
  }

  /** Apply what waits before the text of a stream is compared with the store. */
  private flushTextOf(stepId: string): void {
    const isWaiting = this.waiting.some((frame) => (frame.type === "delta" && frame.delta.stepId === stepId) || frame.type === "reset");
    if (isWaiting) this.applyWaiting();
  }

  private flush(): void {
    if (this.flushTimer !== null) clearTimeout(this.flushTimer);
    this.flushTimer = null;
    this.applyWaiting();
  }

  private applyWaiting(): void {
    const ready = this.waiting;
    this.waiting = [];
    if (ready.length && !this.isStopped) this.store.apply(ready);
  }

  private setStatus(change: Partial<LiveStatus>): void {
    this.status = { ...this.status, ...change };
    for (const listener of this.listeners) listener();
  }
}

function asApiError(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError(0, "failed", error instanceof Error ? error.message : String(error));
}
