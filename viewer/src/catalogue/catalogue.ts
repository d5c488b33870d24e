/** What `GET /api/v1/components` describes: components and tools with the JSON Schemas of their forms. */

/** A JSON Schema 2020-12 with the annotations `x-easel-widget`, `x-easel-when`, `x-easel-order` and the like. */
export type Schema = Readonly<Record<string, unknown>>;

export interface Output {
  name: string;
  type: string;
}

/** The handles of a node: `per` gives one for each entry of a field. */
export interface Handles {
  in: readonly string[];
  out: readonly string[];
  per?: { field: string; handle: string; else?: string };
}

export interface ComponentDescription {
  name: string;
  title: string;
  group: string;
  description: string;
  kind: "ordinary" | "container" | "start" | "note";
  nodeType: string;
  effect: string;
  isTool: boolean;
  params: Schema;
  defaults: Readonly<Record<string, unknown>>;
  outputs: readonly Output[];
  handles: Handles;
  /** The fields of the form that may contain secrets. */
  secrets: readonly string[];
}

export interface Catalogue {
  build: string;
  groups: readonly { id: string; title: string }[];
  components: readonly ComponentDescription[];
  tools: readonly ComponentDescription[];
}
