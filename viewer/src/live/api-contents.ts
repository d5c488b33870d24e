/** Contents of a run that are read from the API when they are shown. */
import { readRunDocument } from "../api/copies";
import * as api from "../api/runs";
import { apiUrl } from "../api/base";
import { readFile } from "../api/files";
import { ApiError } from "../api/request";
import type { CallBodies, CriticalPath, ItemPage, RunContents, StepDetails, StepValues, ToolBodies, ValueKind } from "../run/contents";
import { isObject } from "../run-file/rows";
import type { Item } from "../store/items";
import { formatJson } from "../versions/json-text";

const FIRST_TOOL_PAGES = 20;
const STATES = ["active", "failed", "done", "closed"] as const;

export class ApiContents implements RunContents {
  /** Visitors of a share have none: they may not read versions, nor what was sent. */
  readonly document?: () => Promise<unknown>;
  readonly readSentFile?: (path: string) => Promise<Blob>;
  readonly readFile = readFile;

  constructor(
    private readonly runId: string,
    isVisitor = false,
  ) {
    if (isVisitor) return;
    this.document = () => this.readDocument();
    this.readSentFile = readFile;
  }

  async stepValues(stepId: string): Promise<StepValues> {
    const step = await api.readActivation(this.runId, stepId);
    return { inputs: step.inputs ?? {}, outputs: step.outputs ?? {}, variables: step.variables ?? {}, written: {} };
  }

  wholeValue(stepId: string, kind: string, name: string): Promise<unknown> {
    return api.readWholeValue(this.runId, stepId, kind, name);
  }

  async valueText(stepId: string, kind: ValueKind, name: string): Promise<string> {
    const { text, isJson } = await api.readValueText(this.runId, stepId, kind, name);
    return isJson ? formatJson(text) : text;
  }

  valueUrl(stepId: string, kind: ValueKind, name: string): string {
    return apiUrl(api.valuePath(this.runId, stepId, kind, name), { download: 1 });
  }

  async stepDetails(stepId: string): Promise<StepDetails> {
    const { explain, reads } = await api.readStepDetails(this.runId, stepId);
    return {
      explain: explain?.sentence ?? null,
      reads: reads.map((read) => ({ reference: read.reference, nodeId: read.node_id, stepId: read.activation_id, isMissing: read.missing })),
    };
  }

  private async readDocument(): Promise<unknown> {
    try {
      return (await readRunDocument(this.runId)).document;
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return null; // the version is gone
      throw error;
    }
  }

  async criticalPath(): Promise<CriticalPath | null> {
    const { critical } = await api.readCriticalPath(this.runId);
    return critical ? { ms: critical.ms, parts: critical.parts, steps: critical.steps ?? [], unavailable: critical.unavailable } : null;
  }

  async items(stepId: string, from: number): Promise<ItemPage> {
    const list = await api.listItems(this.runId, stepId, from);
    const place = new Map(list.columns.map((name, index) => [name, index]));
    const items = list.rows.map((row): Item => {
      const value = (name: string): unknown => row[place.get(name) ?? -1];
      const number = (name: string): number | null => (typeof value(name) === "number" ? (value(name) as number) : null);
      const item = number("item") ?? 0;
      return {
        item,
        state: STATES.find((state) => state === value("state")) ?? "active",
        createdAt: number("created_at"),
        endedAt: number("ended_at"),
        steps: number("steps") ?? 0,
        tokens: number("tokens") ?? 0,
        error: list.error_of[String(item)] ?? null,
      };
    });
    return { items, count: list.count, next: list.next };
  }

  async callBodies(callId: string): Promise<CallBodies | null> {
    const call = await api.readModelCall(this.runId, callId);
    if (!isObject(call.request)) return null;
    const { messages, tools, params, ...others } = call.request;
    return {
      messages: Array.isArray(messages) ? messages : [],
      tools: tools ?? null,
      params: { ...(isObject(params) ? params : {}), ...others },
      response: call.response ?? null,
    };
  }

  async toolBodies(callId: string): Promise<ToolBodies> {
    let after: string | undefined;
    for (let page = 0; page < FIRST_TOOL_PAGES; page++) {
      const list = await api.listToolCalls(this.runId, after);
      const call = list.tool_calls.find((each) => each.id === callId);
      if (call) return { arguments: call.arguments, result: call.result };
      if (list.next === null) break;
      after = list.next;
    }
    return { arguments: null, result: null };
  }

  rawStep(stepId: string): Promise<unknown> {
    return api.readActivation(this.runId, stepId);
  }

  eventBody(number: number): Promise<unknown> {
    return api.readEvent(this.runId, number);
  }
}
