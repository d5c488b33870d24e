/** The state of one run, and the frames that change it. A file and a live stream of the API both send frames. */
import { takenEdges } from "./edges";
import type { Graph } from "./graph";
import { groupBy } from "./groups";
import { keepEqual, summarizeNodes, type NodeSummary } from "./node-states";
import { isOver } from "./run-status";
import { StepTable, type Step } from "./steps";

export interface Usage {
  promptTokens: number;
  completionTokens: number;
  cachedTokens: number;
  calls: number;
  unpricedCalls: number;
  /** Amounts by currency, as decimal texts. */
  cost: Readonly<Record<string, string>>;
}

/** Where a copy of a run comes from: at which steps a fork began, and what was changed, in the words of the API. */
export interface RunOrigin {
  kind: string;
  runId: string | null;
  from: readonly string[];
  edits: readonly string[];
}

export interface RunHeader {
  id: string;
  status: string;
  error: string | null;
  agentId: string;
  agentTitle: string | null;
  versionId: string;
  versionTitle: string | null;
  sessionId: string;
  query: string | null;
  /** What was sent with the query. */
  files: readonly ServerFile[];
  usage: Usage;
  createdAt: number | null;
  startedAt: number | null;
  finishedAt: number | null;
  origin: RunOrigin | null;
  versionNumber: number | null;
  /** Digests of the version and of the agent's draft now; null where they are not known. */
  versionDigest: string | null;
  draftDigest: string | null;
}

/** A try at a step after which the step became ready again. */
export interface Attempt {
  stepId: string;
  attempt: number;
  readyAt: number | null;
  startedAt: number | null;
  endedAt: number | null;
  worker: string | null;
  endReason: string | null;
  code: string | null;
  error: string | null;
  nextAttemptAt: number | null;
  tokens: number | null;
}

export interface ModelCall {
  id: string;
  stepId: string;
  attempt: number;
  round: string | null;
  kind: string;
  model: string;
  account: string | null;
  status: string;
  error: string | null;
  tries: number;
  waitedMs: number;
  startedAt: number | null;
  firstTokenAt: number | null;
  endedAt: number | null;
  tokensIn: number | null;
  tokensCached: number | null;
  tokensOut: number | null;
  cost: Readonly<Record<string, string>>;
  bodies: string;
}

export interface ToolCall {
  id: string;
  stepId: string | null;
  nodeId: string;
  attempt: number | null;
  round: string | null;
  toolName: string;
  startedAt: number | null;
  elapsedMs: number | null;
  failed: boolean;
  replayed: boolean;
}

export interface RunEvent {
  number: number;
  name: string;
  stepId: string | null;
  nodeId: string | null;
  item: number | null;
  at: number | null;
  /** The beginning of its body, as JSON. */
  summary: string;
}

/** A file of the API: one that a person sent, or that a node made. */
export interface ServerFile {
  /** The path of its route, below the API's prefix. */
  path: string;
  name: string;
  bytes: number | null;
}

export interface MessageStream {
  stepId: string;
  nodeId: string;
  text: string;
  openedAt: number;
  closedAt: number | null;
}

export interface FormField {
  key: string;
  /** What is shown as its name. */
  name: string;
  type: string;
  isOptional: boolean;
  options: readonly string[];
  value: unknown;
}

export interface OpenForm {
  nodeId: string;
  tips: string | null;
  fields: readonly FormField[];
}

/** What a run waits for, in the words of `GET /runs/{id}/explain`. */
export interface RunWaits {
  sentence: string;
  waitsFor: string;
  owner: string | null;
  until: number | null;
  stepId: string | null;
  also: readonly string[];
}

export interface BudgetExceeded {
  scope: string;
  measure: string;
  currency: string | null;
  limit: string;
  spent: string;
  asked: string;
  model: string | null;
}

/** What only a server knows about a run; a file has none of it. */
export interface ServerFacts {
  /** What the reader may do now. */
  may: Readonly<Record<"cancel" | "answer" | "raise_budget" | "rerun" | "fork", boolean>>;
  waits: RunWaits | null;
  budgetExceeded: BudgetExceeded | null;
  /** Numbers of steps by state, by node (`NODE_COUNTS`). */
  nodes: Readonly<Record<string, readonly number[]>>;
  /** How often an edge was followed, by `from>to`. */
  edges: Readonly<Record<string, number>>;
  budgets: readonly RunBudget[];
  /** Kinds of data that the owner hides from the visitor of a share. */
  hidden: readonly string[];
}

/** A limit of what a run may spend; amounts are decimal texts. */
export interface RunBudget {
  scope: string;
  measure: string;
  currency: string | null;
  limit: string;
  spent: string;
  reserved: string;
}

/** Which rows of steps are here. A run of more than 20,000 steps is loaded whole only on request. */
export interface RowsKnown {
  isPartial: boolean;
  total: number;
}

/** A text that continues a message stream. `offset` counts code points, as all positions of texts do. */
export interface TextDelta {
  stepId: string;
  nodeId: string;
  offset: number;
  text: string;
}

export interface RunState {
  /** Raised by every frame: what was derived from an earlier version is out of date. */
  readonly version: number;
  readonly header: RunHeader | null;
  readonly graph: Graph | null;
  /** Nodes whose own policy continues after a failure. */
  readonly handlingNodes: ReadonlySet<string>;
  readonly steps: StepTable;
  readonly nodes: ReadonlyMap<string, NodeSummary>;
  /** How often each edge of the graph was followed, by its id. */
  readonly edges: ReadonlyMap<string, number>;
  readonly rows: RowsKnown;
  readonly attempts: ReadonlyMap<string, readonly Attempt[]>;
  readonly modelCalls: ReadonlyMap<string, readonly ModelCall[]>;
  readonly toolCalls: ReadonlyMap<string, readonly ToolCall[]>;
  readonly events: readonly RunEvent[];
  readonly streams: readonly MessageStream[];
  readonly forms: readonly OpenForm[];
  readonly server: ServerFacts | null;
  /** The clock of the server when the state was read, in milliseconds since 1970. */
  readonly now: number;
}

export type Frame =
  | { type: "header"; header: RunHeader; now: number }
  | { type: "graph"; graph: Graph | null; handlingNodes: ReadonlySet<string> }
  | { type: "steps"; steps: readonly Step[] }
  | { type: "rows"; rows: RowsKnown }
  | { type: "attempts"; attempts: readonly Attempt[] }
  | { type: "model_calls"; calls: readonly ModelCall[] }
  | { type: "tool_calls"; calls: readonly ToolCall[] }
  | { type: "events"; events: readonly RunEvent[] }
  | { type: "streams"; streams: readonly MessageStream[] }
  | { type: "forms"; forms: readonly OpenForm[] }
  | { type: "server"; facts: Partial<ServerFacts> }
  | { type: "status"; status: string; usage?: Usage; error?: string | null; finishedAt?: number | null }
  | { type: "clock"; now: number }
  | { type: "delta"; delta: TextDelta }
  | { type: "reset"; stepId: string; retainedLength: number }
  | { type: "stream_end"; stepId: string; number: number };

const NO_FACTS: ServerFacts = { may: { cancel: false, answer: false, raise_budget: false, rerun: false, fork: false }, waits: null, budgetExceeded: null, nodes: {}, edges: {}, budgets: [], hidden: [] };

export function emptyRun(): RunState {
  return {
    version: 0,
    header: null,
    graph: null,
    handlingNodes: new Set(),
    steps: new StepTable(),
    nodes: new Map(),
    edges: new Map(),
    rows: { isPartial: false, total: 0 },
    attempts: new Map(),
    modelCalls: new Map(),
    toolCalls: new Map(),
    events: [],
    streams: [],
    forms: [],
    server: null,
    now: 0,
  };
}

/** Return the state after some frames. Rows of steps are changed in place; everything else is copied. */
export function applyFrames(state: RunState, frames: readonly Frame[]): RunState {
  if (!frames.length) return state;
  const next = frames.reduce(applyFrame, state);
  const version = state.version + 1;
  if (frames.every((frame) => TEXT_FRAMES.has(frame.type))) return { ...next, version };
  const areEdgesOld = frames.every((frame) => TEXT_FRAMES.has(frame.type) || frame.type === "clock");
  return {
    ...next,
    version,
    nodes: keepEqual(state.nodes, summarizeNodes(next)),
    edges: areEdgesOld ? state.edges : edgesOf(next),
  };
}

/** Return the counts of edges by the rows, or by the server where rows are missing. */
function edgesOf(run: RunState): ReadonlyMap<string, number> {
  const { graph, server, rows } = run;
  if (!rows.isPartial || !server || !graph) return takenEdges(run);
  return new Map(graph.edges.map((edge) => [edge.id, server.edges[`${edge.from}>${edge.to}`] ?? 0]));
}

/** Frames that change no step, so the states of nodes stay as they are. */
const TEXT_FRAMES: ReadonlySet<Frame["type"]> = new Set(["delta", "reset", "stream_end", "events"]);

function applyFrame(state: RunState, frame: Frame): RunState {
  switch (frame.type) {
    case "header":
      return { ...state, header: frame.header, now: Math.max(state.now, frame.now) };
    case "graph":
      return { ...state, graph: frame.graph, handlingNodes: frame.handlingNodes };
    case "steps":
      for (const step of frame.steps) state.steps.upsert(step);
      return state;
    case "rows":
      return { ...state, rows: frame.rows };
    case "attempts":
      return { ...state, attempts: merged(state.attempts, frame.attempts, stepOf, (each) => String(each.attempt)) };
    case "model_calls":
      return { ...state, modelCalls: merged(state.modelCalls, frame.calls, stepOf, idOf) };
    case "tool_calls":
      return { ...state, toolCalls: merged(state.toolCalls, frame.calls, (call) => call.stepId ?? call.nodeId, idOf) };
    case "events":
      return { ...state, events: withEvents(state.events, frame.events) };
    case "streams": {
      const fresh = new Set(frame.streams.map(stepOf));
      const streams = [...state.streams.filter((each) => !fresh.has(each.stepId)), ...frame.streams];
      return { ...state, streams: streams.sort((a, b) => a.openedAt - b.openedAt) };
    }
    case "forms":
      return { ...state, forms: frame.forms };
    case "server":
      return withFacts(state, frame.facts);
    case "status":
      return {
        ...state,
        header: state.header && { ...state.header, ...withoutType(frame) },
        forms: isOver(frame.status) ? [] : state.forms, // a run that is over asks nobody
      };
    case "clock":
      return { ...state, now: Math.max(state.now, frame.now) };
    case "delta":
      return { ...state, streams: withDelta(state, frame.delta) };
    case "reset":
      return {
        ...state,
        streams: state.streams.map((each) => (each.stepId === frame.stepId ? { ...each, text: firstPoints(each.text, frame.retainedLength) } : each)),
      };
    case "stream_end":
      return { ...state, streams: state.streams.map((each) => (each.stepId === frame.stepId ? { ...each, closedAt: frame.number } : each)) };
  }
}

function withoutType({ type, ...fields }: Extract<Frame, { type: "status" }>): Partial<RunHeader> {
  void type;
  return fields;
}

const HANDLED = 12; // its place in the counts of a node

function withFacts(state: RunState, facts: Partial<ServerFacts>): RunState {
  const server = { ...(state.server ?? NO_FACTS), ...facts };
  const handling = Object.entries(server.nodes).filter(([, counts]) => (counts[HANDLED] ?? 0) > 0);
  return { ...state, server, handlingNodes: new Set(handling.map(([nodeId]) => nodeId)) };
}

/** Return whether a delta continues the text that the state has, or repeats a part of it. */
export function continuesText(state: Pick<RunState, "streams">, delta: TextDelta): boolean {
  const known = state.streams.find((each) => each.stepId === delta.stepId);
  return delta.offset <= countPoints(known?.text ?? "");
}

/** Return the streams with a delta; where it repeats known text, its text counts. */
function withDelta(state: RunState, delta: TextDelta): readonly MessageStream[] {
  const known = state.streams.find((each) => each.stepId === delta.stepId);
  if (!known) {
    const openedAt = state.events.at(-1)?.number ?? 0;
    const opened = { stepId: delta.stepId, nodeId: delta.nodeId, text: delta.text, openedAt, closedAt: null };
    return [...state.streams, opened].sort((a, b) => a.openedAt - b.openedAt);
  }
  const text = firstPoints(known.text, delta.offset) + delta.text;
  return state.streams.map((each) => (each === known ? { ...known, text } : each));
}

/** Return the number of code points of a text. */
function countPoints(text: string): number {
  let count = text.length;
  for (let at = 0; at < text.length - 1; at++) {
    if (isPair(text, at)) {
      count--;
      at++;
    }
  }
  return count;
}

/** Return the first code points of a text. */
export function firstPoints(text: string, count: number): string {
  let at = 0;
  for (let points = 0; points < count && at < text.length; points++) at += isPair(text, at) ? 2 : 1;
  return text.slice(0, at);
}

function isPair(text: string, at: number): boolean {
  return (text.charCodeAt(at) & 0xfc00) === 0xd800 && (text.charCodeAt(at + 1) & 0xfc00) === 0xdc00;
}

const stepOf = (row: { stepId: string }): string => row.stepId;
const idOf = (row: { id: string }): string => row.id;

/** Return rows by group with these added; one with the key of a known row replaces it. */
function merged<T>(
  known: ReadonlyMap<string, readonly T[]>,
  added: readonly T[],
  groupOf: (row: T) => string,
  keyOf: (row: T) => string,
): ReadonlyMap<string, readonly T[]> {
  const groups = groupBy(added, groupOf);
  const next = new Map(known);
  for (const [group, rows] of groups) {
    const byKey = new Map([...(known.get(group) ?? []), ...rows].map((row) => [keyOf(row), row]));
    next.set(group, [...byKey.values()]);
  }
  return next;
}

function withEvents(known: readonly RunEvent[], added: readonly RunEvent[]): readonly RunEvent[] {
  const last = known.at(-1)?.number ?? 0;
  const fresh = added.filter((event) => event.number > last).sort((a, b) => a.number - b.number);
  return [...known, ...fresh];
}
