/** The difference of two documents of an agent: on one drawing, and as a list with values, edges and a patch. */
import { lazy, Suspense, useId, useMemo, useState, type ReactNode } from "react";

import { texts } from "../texts";
import { CopyButton, StateBadge } from "../ui/parts";
import { asJson, LongText, Value } from "../ui/values";
import { visibleName, visibleText } from "../ui/visible-text";
import { differenceOf, type DocumentDifference, type EdgeDifference, type NodeDifference, type ValueChange } from "./difference";
import { graphOf, unwrapped, type CanvasDocument } from "./document";
import { formatJson } from "./json-text";
import { edgeMarks, MARKS, nodeMarks, unionGraph } from "./marks";
import { unifiedPatch } from "./unified-patch";

const TextDiff = lazy(() => import("../ui/text-diff"));
const CanvasDrawing = lazy(() => import("../graph/canvas-drawing"));
const t = texts.versions;
const SHORT = 60; // characters of a text that stands on one line
const MAX_DIFF_CHARS = 200_000; // of a text whose lines and words are compared
const FIRST_CHANGES = 100;

export interface DifferenceView {
  /** The node whose changes are shown alone. */
  node: string | null;
  showsLayout: boolean;
}

interface Props {
  before: CanvasDocument;
  after: CanvasDocument;
  labels: readonly [before: string, after: string];
  /** The texts of both documents, where they are known: a patch keeps their numbers and the order of their keys. */
  jsonTexts?: readonly [before: string, after: string];
  /** Whether the documents are stored equal, secrets included, which are masked here. */
  isEqualStored?: boolean;
  /** What is shown, for a page that has it in its address; else the component has it itself. */
  view?: DifferenceView;
  onView?: (view: DifferenceView) => void;
}

export function VersionDifference({ before, after, labels, jsonTexts, isEqualStored, view: given, onView }: Props): ReactNode {
  const [own, setOwn] = useState<DifferenceView>({ node: null, showsLayout: false });
  const view = given ?? own;
  const show = onView ?? setOwn;
  const difference = useMemo(() => differenceOf(before, after), [before, after]);
  const graph = useMemo(() => unionGraph(graphOf(unwrapped(before)), graphOf(unwrapped(after))), [before, after]);
  const marks = useMemo(() => nodeMarks(difference, view.showsLayout), [difference, view.showsLayout]);
  const marksOfEdges = useMemo(() => edgeMarks(difference), [difference]);
  return (
    <div role="group" aria-label={t.difference} data-testid="difference" data-runs-differ={difference.runsDiffer} className="flex min-w-0 flex-col gap-3">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <p className="min-w-0 flex-1 basis-60 font-medium" role="status">
          {headline(difference, isEqualStored)}
        </p>
        {difference.moved.length ? (
          <label className="flex min-h-6 items-center gap-1">
            <input type="checkbox" checked={view.showsLayout} onChange={(event) => show({ ...view, showsLayout: event.target.checked })} />
            {t.showLayout(difference.moved.length)}
          </label>
        ) : null}
        <Legend showsLayout={view.showsLayout} />
      </div>
      <div className="flex h-80 min-w-0 flex-col overflow-hidden rounded border border-line sm:h-96">
        <Suspense fallback={<p className="p-3 text-ink-2">{texts.graph.layingOut}</p>}>
          <CanvasDrawing graph={graph} marks={marks} edgeMarks={marksOfEdges} selected={view.node} onSelect={(node) => show({ ...view, node })} />
        </Suspense>
      </div>
      <Changes difference={difference} labels={labels} node={view.node} onAll={() => show({ ...view, node: null })} />
      {view.showsLayout ? <Moved moved={difference.moved} /> : null}
      <Patch before={before} after={after} jsonTexts={jsonTexts} />
    </div>
  );
}

function headline(difference: DocumentDifference, isEqualStored: boolean | undefined): string {
  if (difference.isSame) return isEqualStored === false ? t.secretsDiffer : t.same;
  if (!difference.runsDiffer) return t.onlyDrawing;
  const { nodes, edges, variables, others } = difference;
  return t.parts([
    ...(["changed", "added", "removed"] as const).map((kind) => [nodes.filter((node) => node.kind === kind).length, t.node, t.kinds[kind]] as const),
    ...(["added", "removed"] as const).map((kind) => [edges.filter((edge) => edge.kind === kind).length, t.edge, t.kinds[kind]] as const),
    [variables.length, t.variable, t.kinds.changed],
    [others.length, t.other, t.kinds.changed],
  ]);
}

function Legend({ showsLayout }: { showsLayout: boolean }): ReactNode {
  const { moved, ...kinds } = MARKS;
  return (
    <span className="flex flex-wrap gap-1" aria-hidden="true">
      {[...Object.values(kinds), ...(showsLayout ? [moved] : [])].map((mark) => (
        <StateBadge key={mark.change} look={mark} />
      ))}
    </span>
  );
}

function Changes({ difference, labels, node, onAll }: { difference: DocumentDifference; labels: Props["labels"]; node: string | null; onAll: () => void }): ReactNode {
  const selected = node === null ? difference.nodes : difference.nodes.filter((each) => each.id === node);
  const edges = node === null ? difference.edges : difference.edges.filter(({ edge }) => edge.from === node || edge.to === node);
  return (
    <div className="flex min-w-0 flex-col gap-3">
      {node === null ? null : (
        <p className="flex flex-wrap items-center gap-2">
          {selected.length + edges.length ? t.onlyNode : t.nodeSame}
          <button type="button" className="min-h-6 text-accent underline" onClick={onAll}>
            {t.showAll}
          </button>
        </p>
      )}
      {selected.map((each) => (
        <NodeChanges key={each.id} node={each} labels={labels} />
      ))}
      {edges.length ? <Edges edges={edges} /> : null}
      {node === null && difference.variables.length ? <Section title={t.variables} changes={difference.variables} labels={labels} /> : null}
      {node === null && difference.others.length ? <Section title={t.others} changes={difference.others} labels={labels} /> : null}
    </div>
  );
}

function NodeChanges({ node, labels }: { node: NodeDifference; labels: Props["labels"] }): ReactNode {
  return (
    <Section
      title={visibleName(node.name, 120)}
      id={node.id}
      kind={node.kind}
      about={`${visibleName(node.component, 40)} · ${visibleName(node.id, 80)}`}
      changes={node.changes}
      labels={labels}
      isFolded={node.kind !== "changed"}
    />
  );
}

interface SectionProps {
  title: string;
  id?: string;
  kind?: NodeDifference["kind"];
  about?: string;
  changes: readonly ValueChange[];
  labels: Props["labels"];
  isFolded?: boolean;
}

function Section({ title, id, kind, about, changes, labels, isFolded = false }: SectionProps): ReactNode {
  const heading = useId();
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? changes : changes.slice(0, FIRST_CHANGES);
  const list = (
    <ul className="flex flex-col">
      {shown.map((change) => (
        <li key={change.path} data-testid="change" data-path={change.path} data-kind={change.kind} className="min-w-0 border-t border-line py-2">
          <Change change={change} labels={labels} />
        </li>
      ))}
      {changes.length > shown.length ? (
        <li className="border-t border-line py-1">
          <button type="button" className="min-h-6 text-accent underline" onClick={() => setWhole(true)}>
            {t.moreChanges(changes.length - shown.length)}
          </button>
        </li>
      ) : null}
    </ul>
  );
  return (
    <div role="group" aria-labelledby={heading} {...(id === undefined ? {} : { "data-testid": "node-change", "data-node-id": id, "data-kind": kind })} className="min-w-0 rounded border border-line px-3 py-2">
      <div className="flex flex-wrap items-center gap-2">
        {kind ? <StateBadge look={MARKS[kind]} /> : null}
        <h3 id={heading} className="font-semibold">
          <bdi>{title}</bdi>
        </h3>
        {about ? <span className="min-w-0 truncate text-ink-2">{about}</span> : null}
      </div>
      {isFolded && changes.length ? (
        <details>
          <summary className="min-h-6 cursor-pointer text-ink-2">{t.parameters(changes.length)}</summary>
          {list}
        </details>
      ) : (
        list
      )}
    </div>
  );
}

function Change({ change: { path, kind, before, after }, labels }: { change: ValueChange; labels: Props["labels"] }): ReactNode {
  return (
    <>
      <p className="flex flex-wrap items-center gap-2">
        <code className="font-mono text-xs font-semibold">
          <bdi>{visibleName(path, 200)}</bdi>
        </code>
        <span className="text-ink-2">{t.kinds[kind]}</span>
      </p>
      {kind === "changed" ? <BeforeAfter before={before} after={after} labels={labels} /> : <Value value={kind === "added" ? after : before} />}
    </>
  );
}

/** Short values on one line; texts and structures side by side, with their differences by line and word. */
function BeforeAfter({ before, after, labels }: { before: unknown; after: unknown; labels: Props["labels"] }): ReactNode {
  const [a, b] = [shownText(before), shownText(after)];
  if (isShort(before, a) && isShort(after, b)) {
    return (
      <p className="flex flex-wrap items-center gap-2 font-mono text-xs">
        <del data-tone="red" className="bg-tone-soft px-1 text-tone no-underline">
          {visibleText(a)}
        </del>
        <span aria-hidden="true">→</span>
        <ins data-tone="green" className="bg-tone-soft px-1 text-tone no-underline">
          {visibleText(b)}
        </ins>
      </p>
    );
  }
  if (a.length + b.length > MAX_DIFF_CHARS) {
    return (
      <div className="grid gap-2 sm:grid-cols-2">
        <LongText text={a} />
        <LongText text={b} />
      </div>
    );
  }
  const language = typeof before === "string" && typeof after === "string" ? "text" : "json";
  return (
    <Suspense fallback={<p className="text-ink-2">{texts.inspector.loading}</p>}>
      <TextDiff before={visibleText(a)} after={visibleText(b)} labels={labels} language={language} />
    </Suspense>
  );
}

function shownText(value: unknown): string {
  return typeof value === "string" ? value : asJson(value);
}

function isShort(value: unknown, text: string): boolean {
  return text.length <= SHORT && !text.includes("\n") && (typeof value !== "object" || value === null || text.length < SHORT);
}

function Edges({ edges }: { edges: readonly EdgeDifference[] }): ReactNode {
  const heading = useId();
  return (
    <section aria-labelledby={heading} className="rounded border border-line px-3 py-2">
      <h3 id={heading} className="font-semibold">
        {t.edges}
      </h3>
      <ul>
        {edges.map(({ edge, kind, fromName, toName, branch }) => (
          <li key={`${kind} ${edge.id}`} data-testid="edge-change" data-kind={kind} data-edge={`${edge.from}>${edge.to}`} className="flex flex-wrap items-center gap-2 py-1">
            <StateBadge look={MARKS[kind]} />
            <span>
              <bdi>{visibleName(fromName, 80)}</bdi>
              {branch === null ? null : (
                <>
                  {" › "}
                  <bdi>{visibleName(branch, 80)}</bdi>
                </>
              )}
              {" → "}
              <bdi>{visibleName(toName, 80)}</bdi>
            </span>
            {edge.kind === "flow" ? null : <span className="text-ink-2">{visibleName(edge.kind, 20)}</span>}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Moved({ moved }: { moved: DocumentDifference["moved"] }): ReactNode {
  return (
    <p className="text-ink-2">
      {t.moved}{" "}
      {moved.slice(0, FIRST_CHANGES).map(({ id, name }, place) => (
        <span key={id}>
          {place ? ", " : ""}
          <bdi>{visibleName(name, 60)}</bdi>
        </span>
      ))}
      {moved.length > FIRST_CHANGES ? ` (+${moved.length - FIRST_CHANGES})` : null}
    </p>
  );
}

/** The difference for `patch`: it makes the JSON of the second document out of that of the first. */
function Patch({ before, after, jsonTexts }: { before: CanvasDocument; after: CanvasDocument; jsonTexts: Props["jsonTexts"] }): ReactNode {
  const [isOpen, setOpen] = useState(false);
  const [a, b] = useMemo(() => {
    const [textA, textB] = jsonTexts ?? [JSON.stringify(before), JSON.stringify(after)];
    return [formatJson(textA), formatJson(textB)];
  }, [before, after, jsonTexts]);
  const patch = useMemo(() => (isOpen ? unifiedPatch(a, b, "a.json", "b.json") : ""), [isOpen, a, b]);
  return (
    <details className="min-w-0 rounded border border-line px-3 py-1" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary className="min-h-6 cursor-pointer leading-6">{t.patch}</summary>
      <p className="text-ink-2">{t.patchHint}</p>
      <p className="flex flex-wrap items-center gap-x-4">
        <span className="inline-flex items-center">
          {t.copyPatch} <CopyButton text={() => patch} label={t.copyPatch} />
        </span>
        <span className="inline-flex items-center">
          {t.copyJson} <CopyButton text={() => a} label={t.copyJson} />
        </span>
      </p>
      <div data-testid="patch" className="max-h-96 overflow-auto" role="region" aria-label={t.patch} tabIndex={0}>
        {patch ? <LongText text={patch} /> : <p>{t.noPatch}</p>}
      </div>
    </details>
  );
}
