/** What the editor gives to the form of a node, and what it gets back. */
import type { ComponentDescription } from "../catalogue/catalogue";

export interface Finding {
  nodeId: string | null;
  /** The path of the field in the form, as the API names it. */
  field: string | null;
  message: string;
  code: string;
  severity: string;
}

/** A value that a node can refer to at its place: RAGFlow's syntax without braces, for example `LLM:Reply@content`. */
export interface ReferenceChoice {
  reference: string;
  label: string;
  /** What the value belongs to: a node, `sys`, `env` or the container around. */
  group: string;
  type: string;
  /** The value in the run that is open in the editor. */
  value?: unknown;
}

/** One change of a form; `value` undefined removes the member. */
export interface FormChange {
  path: readonly (string | number)[];
  value: unknown;
}

export interface NodeFormProps {
  agentId: string;
  nodeId: string;
  /** Null if this server does not know the component: the form is then JSON. */
  component: ComponentDescription | null;
  /** `data.form` of the node. */
  form: Readonly<Record<string, unknown>>;
  findings: readonly Finding[];
  references: readonly ReferenceChoice[];
  /** The other nodes that a branch can lead to. */
  targets: readonly { nodeId: string; name: string }[];
  /** The nodes that edges lead to from the handles of branches: `Case 1`, `end_cpn_ids`, the uuid of a category. */
  branchTargets?: Readonly<Record<string, readonly string[]>>;
  /** Draws the edges from a handle to these nodes alone. Without it the targets are written into the form. */
  onBranchTargets?: (handle: string, targets: readonly string[]) => void;
  isReadOnly: boolean;
  /** The path of the field to focus, as a finding names it. */
  focusField: string | null;
  onChange: (change: FormChange) => void;
}
