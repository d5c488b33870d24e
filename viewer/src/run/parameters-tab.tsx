/** Parameters of a step's node, as of the run's version, with the references in them as links to what wrote their values. */
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { isObject } from "../run-file/rows";
import { texts } from "../texts";
import { Empty } from "../ui/parts";
import { NamedValue } from "../ui/values";
import { visibleName } from "../ui/visible-text";
import { Reads } from "./reads";
import { useRun, useRunContext } from "./use-run";

const t = texts.inspector;

export function ParametersTab({ stepId, nodeId }: { stepId: string; nodeId: string }): ReactNode {
  const { contents } = useRunContext();
  const id = useRun((state) => state.header?.id ?? "");
  const version = useRun((state) => state.header?.versionNumber ?? null);
  const { data, error, isLoading } = useQuery({
    queryKey: ["run", id, "document"],
    queryFn: async () => (await contents.document?.()) ?? null,
    enabled: contents.document !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (isLoading) return <Empty>{t.loading}</Empty>;
  if (error) {
    return (
      <p role="alert" className="text-red">
        {visibleName(error.message, 500)}
      </p>
    );
  }
  const params = paramsOf(data, nodeId);
  if (!params) return <Empty>{t.noParameters}</Empty>;
  const names = Object.keys(params);
  return (
    <>
      <p className="mb-1 text-ink-2">{version === null ? t.ofVersion : t.ofVersionNumber(version)}</p>
      {names.length ? names.map((name) => <NamedValue key={name} name={name} value={params[name]} />) : <Empty>{t.noParameters}</Empty>}
      <Reads stepId={stepId} />
    </>
  );
}

/** Return the parameters of a node as its author wrote them in the editor, else as the engine reads them. */
export function paramsOf(document: unknown, nodeId: string): Readonly<Record<string, unknown>> | null {
  if (!isObject(document)) return null;
  const graph = isObject(document.graph) && Array.isArray(document.graph.nodes) ? document.graph.nodes : [];
  const node = graph.filter(isObject).find((each) => each.id === nodeId);
  const form = isObject(node?.data) && isObject(node.data.form) ? node.data.form : null;
  const components = isObject(document.components) ? document.components : {};
  const entry = components[nodeId];
  const obj = isObject(entry) && isObject(entry.obj) ? entry.obj : null;
  if (form && Object.keys(form).length) return form;
  return isObject(obj?.params) ? obj.params : form;
}
