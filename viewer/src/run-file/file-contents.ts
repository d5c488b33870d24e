/** Contents of an exported run that are read from the file again when they are shown. */
import type { CallBodies, RunContents, StepValues, ToolBodies, Values } from "../run/contents";
import { unreadable } from "./file-errors";
import { isObject } from "./rows";

/** Where a row lies in the file: the positions of its first byte and after its last one. */
export type Place = readonly [start: number, end: number];

/** The places of the rows of a file. */
export interface FileIndex {
  steps: Map<string, Place>;
  values: Map<string, Place[]>;
  variables: Map<string, Place[]>;
  modelCalls: Map<string, Place>;
  callParts: Map<string, Place>;
  toolCalls: Map<string, Place>;
  events: Map<number, Place>;
}

export function emptyIndex(): FileIndex {
  return {
    steps: new Map(), values: new Map(), variables: new Map(), modelCalls: new Map(), callParts: new Map(),
    toolCalls: new Map(), events: new Map(),
  };
}

export class FileContents implements RunContents {
  constructor(
    private readonly file: Blob,
    private readonly index: FileIndex,
    private readonly versionDocument: unknown = null,
  ) {}

  document(): Promise<unknown> {
    return Promise.resolve(this.versionDocument);
  }

  async stepValues(stepId: string): Promise<StepValues> {
    const rows = await this.readAll(this.index.values.get(stepId));
    const step = await this.read(this.index.steps.get(stepId));
    const nodeId = isObject(step) ? step.node_id : null;
    const [own] = rows.filter((row) => row.node_id === nodeId);
    const others = rows.filter((row) => row !== own);
    const variables = await this.readAll(this.index.variables.get(stepId));
    return {
      inputs: valuesOf(own?.inputs),
      outputs: valuesOf(own?.outputs),
      variables: Object.fromEntries(variables.map((row) => [String(row.name), row.value])),
      written: Object.fromEntries(others.map((row) => [String(row.node_id), valuesOf(row.outputs)])),
    };
  }

  async callBodies(callId: string): Promise<CallBodies | null> {
    const call = await this.read(this.index.modelCalls.get(callId));
    if (!isObject(call) || call.bodies !== "stored" || !isObject(call.request)) return null;
    const { request } = call;
    const digests = Array.isArray(request.messages) ? request.messages : [];
    const parts = Object.entries(request).filter(([name]) => !["messages", "tools", "params"].includes(name));
    const others = await Promise.all(parts.map(async ([name, value]) => [name, await this.part(value)] as const));
    return {
      messages: await Promise.all(digests.map((digest) => this.part(digest))),
      tools: request.tools === undefined ? null : await this.part(request.tools),
      params: { ...(isObject(request.params) ? request.params : {}), ...Object.fromEntries(others) },
      response: call.response === null ? null : await this.part(call.response),
    };
  }

  async toolBodies(callId: string): Promise<ToolBodies> {
    const call = await this.read(this.index.toolCalls.get(callId));
    return isObject(call) ? { arguments: call.arguments, result: call.result } : { arguments: null, result: null };
  }

  async rawStep(stepId: string): Promise<unknown> {
    const row = await this.read(this.index.steps.get(stepId));
    const values = await this.readAll(this.index.values.get(stepId));
    const variables = await this.readAll(this.index.variables.get(stepId));
    return { ...(isObject(row) ? row : {}), values, variables };
  }

  async eventBody(number: number): Promise<unknown> {
    const row = await this.read(this.index.events.get(number));
    return isObject(row) ? row.body : null;
  }

  /** Return a part of a body; what is no digest, or is not in the file, is returned as it is. */
  private async part(digest: unknown): Promise<unknown> {
    if (Array.isArray(digest)) return Promise.all(digest.map((each) => this.part(each)));
    const place = typeof digest === "string" ? this.index.callParts.get(digest) : undefined;
    if (!place) return digest;
    const row = await this.read(place);
    return isObject(row) ? row.body : digest;
  }

  private async readAll(places: readonly Place[] | undefined): Promise<Record<string, unknown>[]> {
    const rows = await Promise.all((places ?? []).map((place) => this.read(place)));
    return rows.filter(isObject);
  }

  private async read(place: Place | undefined): Promise<unknown> {
    if (!place) return null;
    try {
      return JSON.parse(await this.file.slice(...place).text()) as unknown;
    } catch {
      throw unreadable();
    }
  }
}

function valuesOf(value: unknown): Values {
  return isObject(value) ? value : {};
}
