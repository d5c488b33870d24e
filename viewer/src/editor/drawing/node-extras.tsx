/** What the editor adds to a node: its handles, names of branches, findings, whether it was changed, and the text of a note. */
import { Handle, NodeResizer, useConnection } from "@xyflow/react";
import { use, type ReactNode } from "react";

import { isContainer } from "../../graph/layout";
import type { GraphNode } from "../../store/graph";
import { texts } from "../../texts";
import { visibleName, visibleText } from "../../ui/visible-text";
import { fitContainers, placeNodes, resizeNode } from "../document/commands";
import { connectionProblem, handlesOf, targetHandleFor } from "../document/connections";
import { nodesOf } from "../document/document";
import { textOf } from "../document/json";
import { countErrors, findingsOf, useDraft, useEditor } from "../editor-context";
import { ChangedNodesContext } from "../run/changed-nodes";
import { placedHandles, type PlacedHandle } from "./places";

const t = texts.editor.drawing;

export function NodeExtras({ node, isSelected }: { node: GraphNode; isSelected: boolean }): ReactNode {
  const handles = useDraft((state) => placedHandles(state.document ?? {}, node.id));
  const isBranching = node.branches.length > 0;
  return (
    <>
      {node.kind === "noteNode" ? <NoteText node={node} /> : null}
      {handles.map((handle) => (
        <EditHandle key={`${handle.type} ${handle.id}`} handle={handle} isNamed={isBranching && handle.type === "source"} />
      ))}
      {isSelected && isContainer(node) ? <Resizer node={node} /> : null}
      <Badges node={node} />
      <Refused node={node} />
    </>
  );
}

function EditHandle({ handle, isNamed }: { handle: PlacedHandle; isNamed: boolean }): ReactNode {
  const { isReadOnly } = useEditor();
  const isUpright = handle.side === "left" || handle.side === "right";
  const label = visibleName(handle.label || handle.id, 40);
  return (
    <>
      <Handle
        id={handle.id}
        type={handle.type}
        position={handle.position}
        isConnectable={!isReadOnly}
        data-testid="handle"
        data-handle={handle.id}
        title={label}
        style={isUpright ? { top: `${handle.along}%` } : { left: `${handle.along}%` }}
        className={`editor-handle ${handle.id === "agentException" ? "editor-handle-exception" : ""}`}
      />
      {isNamed ? (
        <span className="pointer-events-none absolute max-w-28 -translate-y-full truncate rounded bg-surface/85 px-1 text-[10px] leading-4 text-ink-2" style={{ top: `${handle.along}%`, left: "calc(100% + 8px)" }}>
          <bdi>{label}</bdi>
        </span>
      ) : null}
    </>
  );
}

function Badges({ node }: { node: GraphNode }): ReactNode {
  const findings = useDraft((state) => findingsOf(state.findings, node.id));
  const isChanged = use(ChangedNodesContext).has(node.id);
  const { focusField } = useEditor();
  const [first] = findings;
  return (
    <span className="absolute -top-3 right-1 z-10 flex gap-1">
      {isChanged ? (
        <span data-testid="changed" data-tone="accent" title={t.changedHint} className="rounded bg-tone-soft px-1 text-[10px] leading-4 font-medium text-tone">
          {t.changed}
        </span>
      ) : null}
      {first ? (
        <button
          type="button"
          tabIndex={-1}
          data-testid="badge"
          data-tone={countErrors(findings) ? "red" : "amber"}
          title={findings.slice(0, 5).map((finding) => visibleName(finding.message, 200)).join("\n")}
          aria-label={`${visibleName(node.name, 60)}: ${t.findings(findings.length)}`}
          onClick={() => focusField({ nodeId: node.id, field: first.field })}
          className="nopan nodrag pointer-events-auto flex min-h-6 min-w-6 items-center justify-center rounded-full border border-tone bg-tone-soft px-1 text-[11px] font-semibold text-tone"
        >
          {countErrors(findings) ? "✗" : "!"} {findings.length}
        </button>
      ) : null}
    </span>
  );
}

/** While an edge is drawn: why it cannot end at this node. */
function Refused({ node }: { node: GraphNode }): ReactNode {
  const { session } = useEditor();
  const problem = useConnection((connection) => {
    if (!connection.inProgress || connection.fromNode.id === node.id) return null;
    const document = session.getState().document ?? {};
    const { fromNode, fromHandle } = connection;
    if (fromHandle.type === "source") {
      const sourceHandle = fromHandle.id ?? "start";
      return connectionProblem(document, { source: fromNode.id, sourceHandle, target: node.id, targetHandle: targetHandleFor(sourceHandle) });
    }
    const own = nodesOf(document).get(node.id);
    const ways = own ? handlesOf(document, own).filter((handle) => handle.type === "source") : [];
    const targetHandle = fromHandle.id ?? "end";
    const problems = ways.map((way) => connectionProblem(document, { source: node.id, sourceHandle: way.id, target: fromNode.id, targetHandle }));
    return problems.includes(null) ? null : (problems[0] ?? "");
  });
  return problem === null ? null : <span data-testid="refused" title={problem} className="absolute inset-0 z-10 cursor-not-allowed rounded-md bg-surface/70" />;
}

function NoteText({ node }: { node: GraphNode }): ReactNode {
  const { select } = useEditor();
  const text = useDraft((state) => textOf(nodesOf(state.document ?? {}).get(node.id)?.form.text));
  return (
    <button
      type="button"
      data-focus={node.id}
      onClick={() => select({ nodes: [node.id], edges: [] })}
      className="nopan pointer-events-auto absolute inset-0 overflow-hidden rounded bg-amber-soft p-2 text-left align-top whitespace-pre-wrap"
    >
      <span className="block font-medium">{visibleName(node.name, 80)}</span>
      {visibleText(text.slice(0, 1000))}
    </button>
  );
}

function Resizer({ node }: { node: GraphNode }): ReactNode {
  const { isReadOnly, perform } = useEditor();
  if (isReadOnly) return null;
  return (
    <NodeResizer
      minWidth={160}
      minHeight={100}
      lineClassName="editor-resize-line"
      handleClassName="editor-resize-handle"
      onResizeEnd={(_, { x, y, width, height }) =>
        perform(texts.editor.done.resize, (document) => {
          const resized = resizeNode(placeNodes(document, new Map([[node.id, { x, y }]])), node.id, width, height);
          const [child] = [...nodesOf(resized).values()].filter((each) => each.parent === node.id);
          return child ? fitContainers(resized, [child.id]) : resized;
        })
      }
    />
  );
}
