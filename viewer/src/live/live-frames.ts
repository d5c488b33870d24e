/** Replies and stream frames of the API as frames of the store. Members of a newer release are ignored. */
import type { ActivationList, AttemptList, Graph, Run, ToolCallList } from "../api/replies";
import { attemptOf, eventOf, formsOf, graphOf, headerOf, isObject, modelCallOf, Row, stepOf, toolCallOf, usageOf } from "../run-file/rows";
import type { BudgetExceeded, Frame, RunBudget, OpenForm, RunEvent, RunWaits, ServerFacts, TextDelta } from "../store/run";
import { isOver } from "../store/run-status";
import type { Step } from "../store/steps";

type Fields = Readonly<Record<string, unknown>>;

/** Return the frames of a run as `GET /runs/{id}?activations=none` and `hello` show it. */
export function framesOfRun(run: Run): Frame[] {
  const named = { ...run, agent_id: run.agent_id ?? "", version_id: run.version_id ?? "", session_id: run.session_id ?? "" };
  const may = run.may ?? { cancel: false, answer: false, raise_budget: false, rerun: false, fork: false };
  return [
    { type: "header", header: headerOf(new Row(named, "run", null)), now: run.now ?? 0 },
    {
      type: "server",
      facts: {
        may: { cancel: may.cancel, answer: may.answer, raise_budget: may.raise_budget, rerun: may.rerun, fork: may.fork },
        waits: waitsOf(run.waits),
        budgetExceeded: budgetExceededOf(run.budget_exceeded),
        nodes: nodeCountsOf(run.nodes),
        budgets: budgetsOf(run.budget),
      },
    },
    { type: "forms", forms: isOver(run.status) ? [] : openFormsOf(run.waiting) },
  ];
}

export function frameOfGraph(graph: Graph): Frame {
  return { type: "graph", graph: graphOf(graph), handlingNodes: new Set() };
}

/** Return the forms that a person can answer; what a budget has stopped is shown by `budget_exceeded`. */
function openFormsOf(waiting: unknown): OpenForm[] {
  if (!isObject(waiting)) return [];
  const shown = Object.entries(waiting).filter(([, form]) => !isBudgetStop(form));
  return formsOf({ forms: Object.fromEntries(shown) });
}

function isBudgetStop(form: unknown): boolean {
  const inputs = isObject(form) && isObject(form.inputs) ? Object.values(form.inputs) : [];
  return inputs.some((field) => isObject(field) && isObject(field.budget));
}

/** Return steps out of compact rows: values by columns, repeated texts as numbers of `strings`. */
export function stepsOf(list: Pick<ActivationList, "columns" | "strings" | "rows">): Step[] {
  return list.rows.map((row, element) => {
    const fields = list.columns.map((name, place) => {
      const value = row[place];
      return [name, INTERNED.has(name) && typeof value === "number" ? list.strings[value] : value] as const;
    });
    return stepOf(new Row(Object.fromEntries(fields), "rows", element));
  });
}

const INTERNED = new Set(["node_id", "component", "scope", "status", "outcome", "worker", "code"]);

export function isStepList(value: unknown): value is Pick<ActivationList, "columns" | "strings" | "rows" | "revision"> {
  return isObject(value) && Array.isArray(value.columns) && Array.isArray(value.strings) && Array.isArray(value.rows) && typeof value.revision === "number";
}

export function frameOfAttempts(list: AttemptList): Frame {
  return { type: "attempts", attempts: list.attempts.map((each, element) => attemptOf(new Row(each, "attempts", element))) };
}

export function frameOfToolCalls(list: ToolCallList): Frame {
  return { type: "tool_calls", calls: list.tool_calls.map((each, element) => toolCallOf(new Row(each, "tool_calls", element))) };
}

export function frameOfModelCalls(calls: readonly unknown[]): Frame {
  return { type: "model_calls", calls: calls.map((each, element) => modelCallOf(new Row(each, "calls", element))) };
}

/** Return the frames of a `state`: only its members that have changed are in it. */
export function framesOfState(state: Fields): Frame[] {
  const frames: Frame[] = [];
  const facts: Partial<ServerFacts> = {
    ...("nodes" in state ? { nodes: nodeCountsOf(state.nodes) } : {}),
    ...("waits" in state ? { waits: waitsOf(state.waits) } : {}),
    ...("edges" in state ? { edges: edgeCountsOf(state.edges) } : {}),
    ...("budget" in state ? { budgets: budgetsOf(state.budget) } : {}),
  };
  if (Object.keys(facts).length) frames.push({ type: "server", facts });
  const header = {
    ...("usage" in state ? { usage: usageOf(state.usage) } : {}),
    ...("error" in state ? { error: typeof state.error === "string" ? state.error : null } : {}),
  };
  if (typeof state.status === "string") frames.push({ type: "status", status: state.status, ...header });
  return frames;
}

/** Return the frames of an event's envelope, with the end of a message stream. */
export function framesOfEvent(envelope: Fields): Frame[] {
  const event = runEventOf(envelope);
  if (!event) return [];
  const frames: Frame[] = [{ type: "events", events: [event] }];
  if (event.name === "message_end" && event.stepId !== null) frames.push({ type: "stream_end", stepId: event.stepId, number: event.number });
  return frames;
}

function runEventOf(envelope: Fields): RunEvent | null {
  if (typeof envelope.seq !== "number") return null;
  const body = isObject(envelope.data) ? envelope.data : {};
  const name = typeof envelope.event === "string" ? envelope.event : "run_failed";
  const nodeId = typeof body.component_id === "string" ? body.component_id : null;
  const shown = name === "run_failed" ? { message: envelope.message } : withoutKnown(body);
  const row = { number: envelope.seq, event: name, activation_id: envelope.activation, node_id: nodeId, item: envelope.item, body: shown };
  return { ...eventOf(new Row(row, "events", envelope.seq)), at: typeof envelope.at === "number" ? envelope.at : null };
}

/** The name of the node and its component have columns of their own; values and times are shown with their step. */
function withoutKnown(body: Fields): Fields {
  return Object.fromEntries(Object.entries(body).filter(([name]) => !KNOWN.has(name)));
}

const KNOWN = new Set(["component_id", "component_name", "component_type", "inputs", "outputs", "reference", "attachment", "downloads", "elapsed_time"]);

export function deltaOf(delta: Fields): TextDelta | null {
  const { stream, node_id: nodeId, offset, text } = delta;
  if (typeof stream !== "string" || typeof offset !== "number" || typeof text !== "string") return null;
  return { stepId: stream, nodeId: typeof nodeId === "string" ? nodeId : "", offset, text };
}

function nodeCountsOf(nodes: unknown): Readonly<Record<string, readonly number[]>> {
  if (!isObject(nodes)) return {};
  return Object.fromEntries(
    Object.entries(nodes).map(([nodeId, counts]) => [nodeId, Array.isArray(counts) ? counts.map((each) => (typeof each === "number" ? each : 0)) : []]),
  );
}

function edgeCountsOf(edges: unknown): Readonly<Record<string, number>> {
  if (!isObject(edges)) return {};
  return Object.fromEntries(Object.entries(edges).map(([edge, count]) => [edge, typeof count === "number" ? count : 0]));
}

function budgetsOf(budgets: unknown): RunBudget[] {
  if (!Array.isArray(budgets)) return [];
  return budgets.filter(isObject).map((each) => ({
    scope: textOf(each.scope) ?? "run",
    measure: textOf(each.measure) ?? "",
    currency: textOf(each.currency),
    limit: textOf(each.limit) ?? "0",
    spent: textOf(each.spent) ?? "0",
    reserved: textOf(each.reserved) ?? "0",
  }));
}

function textOf(value: unknown): string | null {
  return typeof value === "string" || typeof value === "number" ? String(value) : null;
}

function waitsOf(waits: unknown): RunWaits | null {
  if (!isObject(waits) || typeof waits.sentence !== "string") return null;
  const also = Array.isArray(waits.also) ? waits.also : [];
  return {
    sentence: waits.sentence,
    waitsFor: typeof waits.waits_for === "string" ? waits.waits_for : "",
    owner: typeof waits.owner === "string" ? waits.owner : null,
    until: typeof waits.until === "string" ? Date.parse(waits.until) : null,
    stepId: typeof waits.activation_id === "string" ? waits.activation_id : null,
    also: also.flatMap((each) => (isObject(each) && typeof each.sentence === "string" ? [each.sentence] : [])),
  };
}

function budgetExceededOf(value: unknown): BudgetExceeded | null {
  if (!isObject(value)) return null;
  return {
    scope: textOf(value.scope) ?? "run",
    measure: textOf(value.measure) ?? "",
    currency: textOf(value.currency),
    limit: textOf(value.limit) ?? "",
    spent: textOf(value.spent) ?? "",
    asked: textOf(value.asked) ?? "",
    model: textOf(value.model),
  };
}
