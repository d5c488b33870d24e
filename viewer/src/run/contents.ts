/** What a page loads only when it is shown: values, bodies of calls, whole rows. A file or the API provides them. */

/** Values by name. A cut one is `{"$preview", "bytes", "type"}`, a lost one `{"$gone", "bytes", "error"}`. */
export type Values = Readonly<Record<string, unknown>>;

export type ValueKind = "inputs" | "outputs" | "variables";

export interface StepValues {
  inputs: Values;
  outputs: Values;
  variables: Values;
  /** Outputs of containers that this step has written, by the container's node. */
  written: Readonly<Record<string, Values>>;
}

export interface CallBodies {
  messages: readonly unknown[];
  tools: unknown;
  params: unknown;
  response: unknown;
}

export interface ToolBodies {
  arguments: unknown;
  result: unknown;
}

export interface RunContents {
  stepValues(stepId: string): Promise<StepValues>;
  callBodies(callId: string): Promise<CallBodies | null>;
  toolBodies(callId: string): Promise<ToolBodies>;
  /** A value whole that was cut; a file has no more than what it shows. */
  wholeValue?(stepId: string, kind: ValueKind, name: string): Promise<unknown>;
  /** The row of a step as it is stored, with its values. */
  rawStep(stepId: string): Promise<unknown>;
  /** The body of an event. */
  eventBody(number: number): Promise<unknown>;
}
