/** Contents of a run that are read from the API when they are shown. */
import * as api from "../api/runs";
import type { CallBodies, RunContents, StepValues, ToolBodies } from "../run/contents";
import { isObject } from "../run-file/rows";

const FIRST_TOOL_PAGES = 20;

export class ApiContents implements RunContents {
  constructor(private readonly runId: string) {}

  async stepValues(stepId: string): Promise<StepValues> {
    const step = await api.readActivation(this.runId, stepId);
    return { inputs: step.inputs ?? {}, outputs: step.outputs ?? {}, variables: step.variables ?? {}, written: {} };
  }

  wholeValue(stepId: string, kind: string, name: string): Promise<unknown> {
    return api.readWholeValue(this.runId, stepId, kind, name);
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
