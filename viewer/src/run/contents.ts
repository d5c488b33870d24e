/** What a page loads only when it is shown: values, bodies of calls, whole rows. A file or the API provides them. */

import type { Item } from "../store/items";

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

/** The chain of steps that decided when the run ended, and where its time went by kind, in milliseconds. */
export interface CriticalPath {
  ms: number | null;
  parts: Readonly<Record<string, number>> | null;
  steps: readonly string[];
  /** Why it was not computed. */
  unavailable: string | null;
}

/** A reference of a step's node, and the step that wrote the value which it sees. */
export interface StepRead {
  reference: string;
  nodeId: string | null;
  stepId: string | null;
  isMissing: boolean;
}

/** What is said about a step beside its row: why it waits, and what it reads. */
export interface StepDetails {
  explain: string | null;
  reads: readonly StepRead[];
}

export interface ItemPage {
  items: readonly Item[];
  count: number | null;
  next: number | null;
}

export interface RunContents {
  stepValues(stepId: string): Promise<StepValues>;
  callBodies(callId: string): Promise<CallBodies | null>;
  toolBodies(callId: string): Promise<ToolBodies>;
  /** A value whole that was cut; a file has no more than what it shows. */
  wholeValue?(stepId: string, kind: ValueKind, name: string): Promise<unknown>;
  /** The text of a value whole, of JSON with all digits of its numbers; a file has no more than what it shows. */
  valueText?(stepId: string, kind: ValueKind, name: string): Promise<string>;
  /** The address of a value as a file to download. */
  valueUrl?(stepId: string, kind: ValueKind, name: string): string;
  stepDetails?(stepId: string): Promise<StepDetails>;
  /** The document of the run's version, with secrets masked; null if it is gone. */
  document?(): Promise<unknown>;
  criticalPath?(): Promise<CriticalPath | null>;
  /** A page of a container's items, for runs whose rows are not all here. */
  items?(stepId: string, from: number): Promise<ItemPage>;
  /** The row of a step as it is stored, with its values. */
  rawStep(stepId: string): Promise<unknown>;
  /** Read a file that the run has made; a run out of a file has none. */
  readonly readFile?: (path: string) => Promise<Blob>;
  /** Read a file that was sent with the query. */
  readonly readSentFile?: (path: string) => Promise<Blob>;
  /** The body of an event. */
  eventBody(number: number): Promise<unknown>;
}
