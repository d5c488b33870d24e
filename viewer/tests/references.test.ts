/** T155: the list of references of each node of the recorded documents is what the API's validation accepts there. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

import type { Catalogue, ComponentDescription, Output } from "../src/catalogue/catalogue";
import { referencesAt } from "../src/node-form/references";

type Members = Record<string, unknown>;

interface Accepted {
  outputs: Record<string, Output[]>;
  documents: Record<string, { accepted: Record<string, string[] | string>; used: Record<string, string[]> }>;
}

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const ACCEPTED = JSON.parse(readFileSync(`${ROOT}viewer/tests/accepted-references.json`, "utf8")) as Accepted;

export function componentOf(name: string, outputs: readonly Output[] = []): ComponentDescription {
  return {
    name,
    title: name,
    group: "other",
    description: "",
    kind: "ordinary",
    nodeType: "ragNode",
    effect: "pure",
    isTool: false,
    params: {},
    defaults: {},
    outputs,
    handles: { in: ["end"], out: ["start"] },
    secrets: [],
  };
}

const CATALOGUE: Catalogue = {
  build: "1",
  groups: [],
  components: Object.entries(ACCEPTED.outputs).map(([name, outputs]) => componentOf(name, outputs)),
  tools: [],
};

function documentAt(path: string): Members {
  const read = JSON.parse(readFileSync(ROOT + path, "utf8")) as Members;
  return "graph" in read || "components" in read ? read : (read.dsl as Members);
}

describe.each(Object.keys(ACCEPTED.documents))("%s", (path) => {
  const document = documentAt(path);
  const { accepted = {}, used = {} } = ACCEPTED.documents[path] ?? {};

  it.each(Object.keys(accepted))("node %s is offered what validation accepts", (node) => {
    const expected = accepted[node] ?? [];
    const listed = typeof expected === "string" ? accepted[expected] : expected;
    const offered = [...new Set(referencesAt(document, node, CATALOGUE).map((each) => each.reference))].sort();
    expect(offered).toEqual([...(listed ?? [])].sort());
  });

  it("each reference that is used is offered", () => {
    for (const [node, references] of Object.entries(used)) {
      const offered = referencesAt(document, node, CATALOGUE).map((each) => each.reference);
      for (const reference of references) expect(offered, node).toContain(reference);
    }
  });
});
