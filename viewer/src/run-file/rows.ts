/** Rows of an exported run, as the store has them. What a row must have is checked; unknown members are ignored. */
import type { Graph, GraphEdge, GraphNode } from "../store/graph";
import type { Attempt, FormField, MessageStream, ModelCall, OpenForm, RunEvent, RunHeader, ServerFile, ToolCall, Usage } from "../store/run";
import type { Step } from "../store/steps";
import { invalidRow } from "./file-errors";

const SUMMARY_CHARS = 300;

/** A JSON object of the file, with its place for errors. */
export class Row {
  private readonly fields: Readonly<Record<string, unknown>>;

  constructor(
    value: unknown,
    readonly member: string,
    readonly element: number | null,
  ) {
    if (!isObject(value)) throw invalidRow(member, element, "row");
    this.fields = value;
  }

  text(name: string): string {
    const value = this.fields[name];
    if (typeof value !== "string") throw invalidRow(this.member, this.element, name);
    return value;
  }

  number(name: string): number {
    const value = this.fields[name];
    if (typeof value !== "number") throw invalidRow(this.member, this.element, name);
    return value;
  }

  textOrNull(name: string): string | null {
    const value = this.fields[name];
    return typeof value === "string" ? value : null;
  }

  numberOrNull(name: string): number | null {
    const value = this.fields[name];
    return typeof value === "number" ? value : null;
  }

  /** Return a time in ISO 8601 as milliseconds since 1970. */
  time(name: string): number | null {
    const value = this.fields[name];
    const time = typeof value === "string" ? Date.parse(value) : Number.NaN;
    return Number.isNaN(time) ? null : time;
  }

  value(name: string): unknown {
    return this.fields[name];
  }
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Return a value as JSON; one that is nested too deeply as a sign that there is something. */
function writtenJson(value: unknown): string {
  try {
    return JSON.stringify(value) ?? "";
  } catch {
    return "…"; // deeper than the stack allows
  }
}

export function headerOf(row: Row): RunHeader {
  const origin = row.value("origin");
  const request = row.value("request");
  const query = isObject(request) ? request.query : null;
  return {
    id: row.text("id"),
    status: row.text("status"),
    error: row.textOrNull("error"),
    agentId: row.text("agent_id"),
    agentTitle: row.textOrNull("agent_title"),
    versionId: row.text("version_id"),
    versionTitle: row.textOrNull("version_title"),
    sessionId: row.text("session_id"),
    query: query === null || query === undefined ? null : typeof query === "string" ? query : writtenJson(query),
    files: isObject(request) ? sentFilesOf(request.files) : [],
    usage: usageOf(row.value("usage")),
    createdAt: row.time("created_at"),
    startedAt: row.time("started_at"),
    finishedAt: row.time("finished_at"),
    origin: isObject(origin)
      ? {
          kind: textOr(origin.kind, "copy"),
          runId: typeof origin.run_id === "string" ? origin.run_id : null,
          from: textsOf(origin.from),
          edits: textsOf(origin.edits),
        }
      : null,
    versionNumber: row.numberOrNull("version_number"),
    versionDigest: row.textOrNull("version_digest"),
    draftDigest: row.textOrNull("draft_digest"),
  };
}

/** Return the files of a request, by what it says of them. */
export function sentFilesOf(files: unknown): ServerFile[] {
  return (Array.isArray(files) ? files : []).filter(isObject).flatMap(({ id, name, size }) =>
    typeof id === "string" && /^[0-9a-f]{32}$/.test(id) ? [{ path: `/agents/attachments/${id}/download`, name: textOr(name, id), bytes: typeof size === "number" ? size : null }] : [],
  );
}

function textsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === "string") : [];
}

export function usageOf(value: unknown): Usage {
  const usage = isObject(value) ? value : {};
  return {
    promptTokens: numberOr(usage.prompt_tokens, 0),
    completionTokens: numberOr(usage.completion_tokens, 0),
    cachedTokens: numberOr(usage.cached_tokens, 0),
    calls: numberOr(usage.calls, 0),
    unpricedCalls: numberOr(usage.unpriced_calls, 0),
    cost: costOf(usage.cost),
  };
}

/** Return amounts by currency, as they are written. */
export function costOf(value: unknown): Readonly<Record<string, string>> {
  if (!isObject(value)) return {};
  const amounts = Object.entries(value).filter(([, each]) => typeof each === "string" || typeof each === "number");
  return Object.fromEntries(amounts.map(([currency, each]) => [currency, String(each)]));
}

export function stepOf(row: Row): Step {
  const routed = row.value("routed_to");
  const cost = costOf(row.value("cost"));
  return {
    id: row.text("id"),
    nodeId: row.text("node_id"),
    component: row.textOrNull("component") ?? "",
    scope: row.text("scope"),
    ordinal: row.number("ordinal"),
    orderKey: row.text("order_key"),
    status: row.text("status"),
    outcome: row.textOrNull("outcome"),
    attempt: row.numberOrNull("attempt") ?? 0,
    crashCount: row.numberOrNull("crash_count") ?? 0,
    createdAt: row.numberOrNull("created_at"),
    notBefore: row.numberOrNull("not_before"),
    startedAt: row.numberOrNull("started_at"),
    finishedAt: row.numberOrNull("finished_at"),
    endedAt: row.numberOrNull("ended_at"),
    worker: row.textOrNull("worker"),
    effect: row.textOrNull("effect"),
    tokensIn: row.numberOrNull("tokens_in"),
    tokensOut: row.numberOrNull("tokens_out"),
    cost: Object.entries(cost).map(([currency, amount]) => `${amount} ${currency}`).join(" + ") || null,
    error: row.textOrNull("error"),
    code: row.textOrNull("code"),
    routedTo: Array.isArray(routed) ? routed.filter((each) => typeof each === "string") : null,
    count: row.numberOrNull("count"),
    stream: row.textOrNull("stream"),
  };
}

export function attemptOf(row: Row): Attempt {
  const usage = usageOf(row.value("usage"));
  return {
    stepId: row.text("activation_id"),
    attempt: row.number("attempt"),
    readyAt: row.time("ready_at"),
    startedAt: row.time("started_at"),
    endedAt: row.time("ended_at"),
    worker: row.textOrNull("worker"),
    endReason: row.textOrNull("end_reason"),
    code: row.textOrNull("code"),
    error: row.textOrNull("error"),
    nextAttemptAt: row.time("next_attempt_at"),
    tokens: usage.promptTokens + usage.completionTokens || null,
  };
}

export function modelCallOf(row: Row): ModelCall {
  const usage = row.value("usage");
  const fields = isObject(usage) ? usage : {};
  return {
    id: row.text("id"),
    stepId: row.text("activation_id"),
    attempt: row.numberOrNull("attempt") ?? 1,
    round: row.textOrNull("round"),
    kind: row.textOrNull("kind") ?? "chat",
    model: row.textOrNull("model") ?? "",
    account: row.textOrNull("account"),
    status: row.textOrNull("status") ?? "",
    error: row.textOrNull("error"),
    tries: row.numberOrNull("tries") ?? 1,
    waitedMs: row.numberOrNull("waited_ms") ?? 0,
    startedAt: row.time("started_at"),
    firstTokenAt: row.time("first_token_at"),
    endedAt: row.time("ended_at"),
    tokensIn: numberOrNull(fields.prompt_tokens),
    tokensCached: numberOrNull(fields.cached_tokens),
    tokensOut: numberOrNull(fields.completion_tokens),
    cost: costOf(fields.cost),
    bodies: row.textOrNull("bodies") ?? "none",
  };
}

export function toolCallOf(row: Row): ToolCall {
  return {
    id: row.text("id"),
    stepId: row.textOrNull("activation_id"),
    nodeId: row.textOrNull("node_id") ?? "",
    attempt: row.numberOrNull("attempt"),
    round: row.textOrNull("round"),
    toolName: row.textOrNull("tool_name") ?? "",
    startedAt: row.time("started_at"),
    elapsedMs: row.numberOrNull("elapsed_ms"),
    failed: row.value("failed") === true,
    replayed: row.value("replayed") === true,
  };
}

export function eventOf(row: Row): RunEvent {
  const body = row.value("body");
  const shown = isObject(body) ? Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null)) : body;
  const written = shown === undefined || shown === null ? "" : writtenJson(shown);
  return {
    number: row.number("number"),
    name: row.text("event"),
    stepId: row.textOrNull("activation_id"),
    nodeId: row.textOrNull("node_id"),
    item: row.numberOrNull("item"),
    at: row.time("at"),
    summary: written === "{}" ? "" : written.length > SUMMARY_CHARS ? `${written.slice(0, SUMMARY_CHARS)}…` : written,
  };
}

export function streamOf(row: Row): MessageStream {
  return {
    stepId: row.text("id"),
    nodeId: row.text("node_id"),
    text: row.text("text"),
    openedAt: row.numberOrNull("opened_at") ?? 0,
    closedAt: row.numberOrNull("closed_at"),
  };
}

/** Return the forms that an event `user_inputs` has opened. */
export function formsOf(body: unknown): OpenForm[] {
  const forms = isObject(body) && isObject(body.forms) ? body.forms : {};
  return Object.entries(forms).map(([nodeId, form]) => {
    const inputs = isObject(form) && isObject(form.inputs) ? form.inputs : {};
    const fields = Object.entries(inputs).map(([key, field]) => formFieldOf(key, isObject(field) ? field : {}));
    return { nodeId, tips: isObject(form) && typeof form.tips === "string" ? form.tips : null, fields };
  });
}

function formFieldOf(key: string, field: Readonly<Record<string, unknown>>): FormField {
  const options = Array.isArray(field.options) ? field.options : [];
  return {
    key,
    name: textOr(field.name, key) || key,
    type: textOr(field.type, "line"),
    isOptional: field.optional === true,
    options: options.map((each) => (isObject(each) ? textOr(each.value, textOr(each.label, "")) : String(each))),
    value: field.value ?? null,
  };
}

export function graphOf(value: unknown): Graph | null {
  if (!isObject(value) || !Array.isArray(value.nodes) || !Array.isArray(value.edges)) return null;
  return {
    drawn: value.drawn === true,
    nodes: value.nodes.map((each, element) => graphNodeOf(new Row(each, "graph.nodes", element))),
    edges: value.edges.map((each, element) => graphEdgeOf(new Row(each, "graph.edges", element))),
  };
}

function graphNodeOf(row: Row): GraphNode {
  const branches = row.value("branches");
  return {
    id: row.text("id"),
    kind: row.textOrNull("kind") ?? "ragNode",
    component: row.textOrNull("component") ?? "",
    name: row.textOrNull("name") ?? row.text("id"),
    x: row.numberOrNull("x"),
    y: row.numberOrNull("y"),
    w: row.numberOrNull("w"),
    h: row.numberOrNull("h"),
    parent: row.textOrNull("parent"),
    branches: Array.isArray(branches)
      ? branches.filter(isObject).map((each) => ({ key: textOr(each.key, ""), label: textOr(each.label, "") }))
      : [],
    isStart: row.value("is_start") === true,
  };
}

function graphEdgeOf(row: Row): GraphEdge {
  return {
    id: row.text("id"),
    from: row.text("from"),
    to: row.text("to"),
    branch: row.textOrNull("branch"),
    kind: row.textOrNull("kind") ?? "flow",
  };
}

/** Return the nodes of a document whose own policy continues after a failure: with other nodes or a default value. */
export function handlingNodes(document: unknown): Set<string> {
  const components = isObject(document) && isObject(document.components) ? document.components : {};
  const handling = Object.entries(components).filter(([, entry]) => {
    const obj = isObject(entry) && isObject(entry.obj) ? entry.obj : {};
    const params = isObject(obj.params) ? obj.params : {};
    const goto = params.exception_goto;
    const hasGoto = Array.isArray(goto) && goto.length > 0;
    return Boolean(params.exception_method) && (hasGoto || (params.exception_default_value ?? null) !== null);
  });
  return new Set(handling.map(([id]) => id));
}

export function textOr(value: unknown, otherwise: string): string {
  return typeof value === "string" ? value : otherwise;
}

export function numberOr(value: unknown, otherwise: number): number {
  return typeof value === "number" ? value : otherwise;
}

function numberOrNull(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}
