/** The graph of the run with what a fork does to each node, and where it starts. */
import { useId, useMemo, type ReactNode } from "react";

import type { ForkPreview } from "../api/copies";
import { MarkedDrawing, type NodeMark } from "../graph/marked-drawing";
import { useRunState } from "../run/use-run";
import { CONTROL } from "../rerun/budget-fields";
import type { Graph } from "../store/graph";
import type { RunState } from "../store/run";
import type { Look } from "../store/run-status";
import { scopeParts } from "../store/scopes";
import { texts } from "../texts";
import { Empty } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { stepsOfNode, type ForkPoint } from "./places";

const t = texts.fork;
const MOST_STEPS = 200;

type State = "again" | "reused" | "may" | "unused" | "unknown";

const LOOKS: Readonly<Record<State, Look>> = {
  again: { word: t.states.again, icon: "▸", tone: "accent", border: "thick" },
  reused: { word: t.states.reused, icon: "=", tone: "muted", border: "solid" },
  may: { word: t.states.may, icon: "?", tone: "accent", border: "dashed" },
  unused: { word: t.states.unused, icon: "–", tone: "muted", border: "none" },
  unknown: { word: t.states.unknown, icon: "…", tone: "neutral", border: "none" },
};
const LABELS = { drawing: texts.graph.region, nodes: t.graph, edges: texts.graph.edges };

interface Props {
  point: ForkPoint;
  onPoint: (point: ForkPoint) => void;
  /** The step that was selected in the run. */
  firstStep: string;
  preview: ForkPreview | null;
}

export function ForkGraph({ point, onPoint, firstStep, preview }: Props): ReactNode {
  const run = useRunState();
  const marks = useMemo(() => (run.graph ? marksOf(run.graph, run, preview, point) : new Map<string, NodeMark>()), [run, preview, point]);
  if (!run.graph?.nodes.length) return <Empty>{texts.graph.none}</Empty>;
  const choose = (nodeId: string): void => {
    const rows = stepsOfNode(run, nodeId);
    const own = run.steps.find(firstStep)?.nodeId === nodeId ? firstStep : null;
    const [only] = rows;
    onPoint({ nodeId, stepId: rows.length === 1 && only !== undefined ? run.steps.id(only) : own });
  };
  return (
    <section aria-label={t.graph} className="flex min-w-0 flex-col gap-2">
      <div className="flex h-80 flex-col overflow-hidden rounded border border-line lg:h-[25rem]">
        <MarkedDrawing graph={run.graph} labels={LABELS} hint={t.pick} marks={marks} focus={point.nodeId} onNode={choose} />
      </div>
      <PointField run={run} point={point} firstStep={firstStep} onPoint={onPoint} />
    </section>
  );
}

function marksOf(graph: Graph, run: RunState, preview: ForkPreview | null, point: ForkPoint): Map<string, NodeMark> {
  const again = new Map(preview?.runs_again.map((node) => [node.node_id, node.count]));
  const may = new Set(preview?.may_run);
  const shown = graph.nodes.filter((node) => node.kind !== "noteNode");
  return new Map(
    shown.map((node) => {
      const steps = run.nodes.get(node.id)?.steps ?? 0;
      const count = again.get(node.id) ?? 0;
      const state: State = !preview ? "unknown" : count ? "again" : may.has(node.id) ? "may" : steps ? "reused" : "unused";
      const look = LOOKS[state];
      const isPoint = node.id === point.nodeId;
      const detail = count && count < steps ? t.states.part(count, steps) : look.word;
      const words = isPoint ? `${t.states.start}, ${detail}` : detail;
      const data = { "data-testid": "fork-node", "data-node-id": node.id, "data-state": state };
      return [node.id, { looks: [look], detail: words, words, isSelected: isPoint, isActive: steps > 0, data }];
    }),
  );
}

interface PointFieldProps {
  run: RunState;
  point: ForkPoint;
  firstStep: string;
  onPoint: (point: ForkPoint) => void;
}

/** Which steps of the node run again, where it has several. */
function PointField({ run, point, firstStep, onPoint }: PointFieldProps): ReactNode {
  const id = useId();
  const rows = useMemo(() => stepsOfNode(run, point.nodeId), [run, point.nodeId]);
  const name = visibleName(run.graph?.nodes.find((node) => node.id === point.nodeId)?.name ?? point.nodeId, 80);
  if (rows.length < 2) {
    return (
      <p>
        <span className="font-medium">{t.from}</span> <bdi>{name}</bdi>
      </p>
    );
  }
  const isFirstHere = run.steps.find(firstStep)?.nodeId === point.nodeId;
  const listed = rows.slice(0, MOST_STEPS);
  const first = isFirstHere ? run.steps.rowOf(firstStep) : null;
  const options = first !== null && !listed.includes(first) ? [first, ...listed] : listed;
  return (
    <div>
      <label htmlFor={id} className="block">
        <span className="font-medium">{t.from}</span> <bdi>{name}</bdi>
      </label>
      <select id={id} className={CONTROL} value={point.stepId ?? ""} onChange={(event) => onPoint({ ...point, stepId: event.target.value || null })}>
        <option value="">{t.allSteps(rows.length)}</option>
        {options.map((row) => (
          <option key={row} value={run.steps.id(row)}>
            {stepText(run, row)}
          </option>
        ))}
      </select>
      {rows.length > MOST_STEPS ? <p className="text-ink-2">{t.firstSteps(MOST_STEPS)}</p> : null}
    </div>
  );
}

/** Return where a step is among those of its node: "item 3 › item 1", and its round in a cycle. */
export function stepText(run: Pick<RunState, "steps">, row: number): string {
  const items = scopeParts(run.steps.text(row, "scope") ?? "").map((part) => texts.time.item(part.item));
  const ordinal = run.steps.number(row, "ordinal") ?? 0;
  return [items.join(" › "), ordinal ? texts.compare.round(ordinal) : ""].filter(Boolean).join(", ") || t.theStep;
}
