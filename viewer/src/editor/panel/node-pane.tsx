/** The right column with one node selected: its name, form, where it leads, and what can be done with it. */
import { lazy, Suspense, useDeferredValue, useMemo, type ReactNode } from "react";

import type { ReferenceChoice } from "../../node-form/contract";
import { referencesAt } from "../../node-form/references";
import { texts } from "../../texts";
import { ErrorBoundary } from "../../ui/error-boundary";
import { Button, Empty } from "../../ui/parts";
import { visibleName } from "../../ui/visible-text";
import { branchTargets, withBranchTargets } from "../document/branch-targets";
import { changeForm, disconnect, renameNode } from "../document/commands";
import { handlesOf } from "../document/connections";
import { edgesOf, nodesOf, STARTS, type DrawnNode } from "../document/document";
import { textOf, objectOf } from "../document/json";
import { findingsOf, useDocument, useDraft, useEditor } from "../editor-context";
import { duplicate, removeSelected, ungroupSelected } from "../selection-actions";
import { useRunValues } from "../run/use-run-values";

const NodeForm = lazy(() => import("../../node-form/node-form"));
const t = texts.editor.panel;

export function NodePane({ node, focusField }: { node: DrawnNode; focusField: string | null }): ReactNode {
  const editor = useEditor();
  const { agentId, catalogue, isReadOnly, openDialog, perform } = editor;
  const document = useDocument();
  const findings = useDraft((state) => findingsOf(state.findings, node.id));
  const component = catalogue.components.find((each) => each.name === node.label) ?? null;
  const values = useRunValues();
  const settled = useDeferredValue(document); // what can be read is found after what was typed is shown
  const references = useMemo(
    (): ReferenceChoice[] => referencesAt(settled, node.id, catalogue).map((choice) => (values.has(choice.reference) ? { ...choice, value: values.get(choice.reference) } : choice)),
    [settled, node.id, catalogue, values],
  );
  const targets = useMemo(
    () => [...nodesOf(document).values()].filter((each) => each.id !== node.id && each.parent === node.parent && !["Begin", "Note", "Tool"].includes(each.label) && !(each.label in STARTS)).map(({ id, name }) => ({ nodeId: id, name })),
    [document, node.id, node.parent],
  );
  const drawnTargets = useMemo(() => branchTargets(document, node.id), [document, node.id]);
  const isAlone = !["Begin", "Note", "Tool", "IterationItem", "LoopItem", "ExitLoop", "UserFillUp", "Answer"].includes(node.label);
  const isDrawnOnly = node.label === "Tool" || node.label === "Note";
  return (
    <div className="flex flex-col gap-3 p-3">
      <label className="block">
        <span className="font-medium">{t.name}</span>
        <input
          value={textOf(objectOf(node.raw.data).name)}
          readOnly={isReadOnly}
          maxLength={200}
          onChange={(event) => perform(texts.editor.done.rename, (now) => renameNode(now, node.id, event.target.value), `name ${node.id}`)}
          className="min-h-8 w-full rounded border border-line-strong bg-surface px-2"
        />
      </label>
      <p className="-mt-2 text-xs text-ink-2">
        {visibleName(component?.title ?? node.label, 60)} · {t.id} <code className="font-mono break-all">{visibleName(node.id, 80)}</code>
      </p>
      {component === null && !isDrawnOnly ? <p data-tone="amber" className="text-tone">{t.unknown(visibleName(node.label, 60))}</p> : null}
      <ErrorBoundary key={node.id}>
        <Suspense fallback={<Empty>{texts.inspector.loading}</Empty>}>
          <NodeForm
            key={node.id}
            agentId={agentId}
            nodeId={node.id}
            component={component}
            form={node.form}
            findings={findings}
            references={references}
            targets={targets}
            branchTargets={drawnTargets}
            onBranchTargets={(handle, ids) => perform(texts.editor.done.connect, (now) => withBranchTargets(now, node.id, handle, ids))}
            isReadOnly={isReadOnly}
            focusField={focusField}
            onChange={(change) => perform(texts.editor.done.form, (now) => changeForm(now, node.id, change), `form ${node.id} ${change.path.join("/")}`)}
          />
        </Suspense>
      </ErrorBoundary>
      <Connections node={node} />
      <div className="flex flex-wrap gap-2">
        {isAlone ? (
          <Button disabled={isReadOnly} title={isReadOnly ? texts.editor.readOnly : undefined} onClick={() => openDialog({ runNode: node.id })}>
            {t.runNode}
          </Button>
        ) : null}
        {isReadOnly || node.id === "begin" || node.label in STARTS ? null : (
          <>
            <Button onClick={() => duplicate(editor, [node.id])}>{texts.editor.drawing.duplicate}</Button>
            <Button onClick={() => removeSelected(editor, { nodes: [node.id], edges: [] })}>{texts.editor.drawing.remove}</Button>
          </>
        )}
        {["Iteration", "Loop"].includes(node.label) && !isReadOnly ? <Button onClick={() => ungroupSelected(editor, node.id)}>{texts.editor.drawing.ungroup}</Button> : null}
      </div>
    </div>
  );
}

function Connections({ node }: { node: DrawnNode }): ReactNode {
  const { isReadOnly, openDialog, perform, select } = useEditor();
  const document = useDocument();
  const nodes = nodesOf(document);
  const ways = handlesOf(document, node).filter((handle) => handle.type === "source");
  const edges = edgesOf(document).filter((edge) => edge.source === node.id);
  if (!ways.length) return null;
  const labelOf = (id: string): string => visibleName(ways.find((way) => way.id === id)?.label ?? id, 40);
  return (
    <section aria-label={t.connections}>
      <h2 className="font-medium">{t.connections}</h2>
      {edges.length ? null : <p className="text-ink-2">{t.noConnections}</p>}
      <ul>
        {edges.map((edge) => {
          const name = visibleName(nodes.get(edge.target)?.name ?? edge.target, 60);
          return (
            <li key={edge.id} className="flex items-center gap-1 py-0.5">
              <span className="min-w-0 flex-1 truncate">
                {ways.length > 1 ? <span className="text-ink-2">{labelOf(edge.sourceHandle)} → </span> : null}
                <button type="button" className="min-h-6 text-accent underline" onClick={() => select({ nodes: [edge.target], edges: [] })}>
                  <bdi>{name}</bdi>
                </button>
              </span>
              {isReadOnly ? null : (
                <Button aria-label={t.disconnect(name)} title={t.disconnect(name)} onClick={() => perform(texts.editor.done.disconnect, (now) => disconnect(now, [edge.id]))}>
                  ✕
                </Button>
              )}
            </li>
          );
        })}
      </ul>
      {isReadOnly ? null : (
        <Button className="mt-1" onClick={() => openDialog({ connect: node.id })}>
          {t.connect}
        </Button>
      )}
    </section>
  );
}
