/** Connecting a node by keyboard: from which handle, to which node. What cannot be connected says why. */
import { useId, useState, type ReactNode } from "react";

import { texts } from "../../texts";
import { Dialog } from "../../ui/dialog";
import { Button } from "../../ui/parts";
import { visibleName } from "../../ui/visible-text";
import { connect } from "../document/commands";
import { connectionProblem, handlesOf, targetHandleFor } from "../document/connections";
import { edgesOf, nodesOf } from "../document/document";
import { useDocument, useEditor } from "../editor-context";

const t = texts.editor.connect;

export function ConnectDialog({ nodeId, onClose }: { nodeId: string; onClose: () => void }): ReactNode {
  const { perform, notify } = useEditor();
  const document = useDocument();
  const id = useId();
  const node = nodesOf(document).get(nodeId);
  const ways = node ? handlesOf(document, node).filter((handle) => handle.type === "source") : [];
  const free = ways.find((way) => !edgesOf(document).some((edge) => edge.source === nodeId && edge.sourceHandle === way.id));
  const [way, setWay] = useState((free ?? ways[0])?.id ?? "");
  const [words, setWords] = useState("");
  if (!node) return null;
  const others = [...nodesOf(document).values()].filter((each) => each.id !== nodeId && `${each.name} ${each.label}`.toLowerCase().includes(words.toLowerCase()));
  const connectionTo = (target: string) => ({ source: nodeId, sourceHandle: way, target, targetHandle: targetHandleFor(way) });
  const listed = others.map((each) => ({ node: each, problem: connectionProblem(document, connectionTo(each.id)) })).sort((a, b) => Number(a.problem !== null) - Number(b.problem !== null));
  return (
    <Dialog title={`${visibleName(node.name, 60)}: ${t.title}`} onClose={onClose}>
      {ways.length > 1 ? (
        <label className="mb-2 block">
          <span className="font-medium">{t.from}</span>
          <select value={way} onChange={(event) => setWay(event.target.value)} className="min-h-8 w-full rounded border border-line-strong bg-surface px-2">
            {ways.map((each) => (
              <option key={each.id} value={each.id}>
                {visibleName(each.label || each.id, 60)}
              </option>
            ))}
          </select>
        </label>
      ) : null}
      <input type="search" aria-label={t.search} placeholder={t.search} value={words} onChange={(event) => setWords(event.target.value)} className="mb-2 min-h-8 w-full rounded border border-line-strong bg-surface px-2" />
      {others.length ? null : <p className="text-ink-2">{t.none}</p>}
      <ul className="max-h-[50dvh] overflow-auto">
        {listed.map(({ node: target, problem }) => (
          <li key={target.id} className="border-b border-line py-1">
            <Button
              aria-disabled={problem !== null}
              {...(problem === null ? {} : { "aria-describedby": `${id}-${target.id}` })}
              className={`max-w-full ${problem === null ? "" : "border-line! text-ink-2!"}`}
              onClick={() => {
                if (problem !== null) return;
                if (perform(texts.editor.done.connect, (now) => connect(now, connectionTo(target.id)))) notify(t.done(visibleName(node.name, 60), visibleName(target.name, 60)));
                onClose();
              }}
            >
              <bdi className="truncate">{visibleName(target.name, 60)}</bdi>
              <span className="text-ink-2">{visibleName(target.label, 40)}</span>
            </Button>
            {problem === null ? null : (
              <p id={`${id}-${target.id}`} className="text-xs text-ink-2">
                {problem}
              </p>
            )}
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
