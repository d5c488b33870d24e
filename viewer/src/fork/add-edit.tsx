/** Choosing what a fork changes. */
import { useQuery } from "@tanstack/react-query";
import { useId, useMemo, useState, type ReactNode } from "react";

import type { ForkPreview } from "../api/copies";
import type { Run } from "../api/replies";
import { readActivation, readWholeValue } from "../api/runs";
import { useNodeNames, useRunContext, useRunState } from "../run/use-run";
import { isObject } from "../run-file/rows";
import { typedInputs } from "../rerun/begin-form";
import { CONTROL } from "../rerun/budget-fields";
import type { FormField } from "../store/run";
import { texts } from "../texts";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { paramsOf, type NamedValues } from "./document";
import { EDIT_KINDS, editKey, newEdit, type Edit, type EditKind } from "./edits";
import { stepText } from "./fork-graph";
import { placeOf, stepsOfNode } from "./places";

const t = texts.fork;
const MOST_STEPS = 200;

interface Props {
  run: Run;
  /** The document that the fork runs; undefined while it is loaded, null if it is gone. */
  document: unknown;
  /** The fields of its Begin's form. */
  fields: readonly FormField[];
  /** The variables of the run and of the version that the fork runs; undefined while they are loaded, null if they are gone. */
  variables: NamedValues | null | undefined;
  preview: ForkPreview | null;
  /** The node where the fork starts. */
  pointNode: string;
  edits: readonly Edit[];
  onAdd: (edit: Edit) => void;
}

export function AddEdit(props: Props): ReactNode {
  const { run, document, fields, variables, edits, onAdd } = props;
  const [kind, setKind] = useState<EditKind>("param");
  const [note, setNote] = useState<string | null>(null);
  const add = (edit: Edit): void => {
    const isThere = edits.some((each) => editKey(each) === editKey(edit));
    setNote(isThere ? t.alreadyThere : null);
    if (!isThere) onAdd(edit);
  };
  return (
    <div className="flex flex-col gap-2 rounded border border-line bg-panel p-2">
      <Choose label={t.kind} value={kind} onChange={(value) => setKind(EDIT_KINDS.find((each) => each === value) ?? "param")} options={EDIT_KINDS.map((each) => [each, t.kinds[each]])} />
      {kind === "param" ? <AddParam {...props} onAdd={add} /> : null}
      {kind === "output" ? <AddOutput {...props} onAdd={add} /> : null}
      {kind === "variable" ? <AddVariable variables={variables} onAdd={add} /> : null}
      {kind === "query" || kind === "inputs" ? (
        <>
          <p className="text-ink-2">{t.everything}</p>
          <Button
            className="self-start"
            disabled={document === undefined}
            onClick={() => {
              const { query = "", inputs = {} } = run.first_request ?? {};
              const value = kind === "query" ? query : fields.length ? typedInputs(fields, inputs) : inputs;
              add(newEdit(kind, "", "", t.kinds[kind], value ?? (kind === "query" ? "" : {})));
            }}
          >
            {t.add}
          </Button>
        </>
      ) : null}
      <span role="status" className="text-ink-2">
        {note}
      </span>
    </div>
  );
}

type Options = readonly (readonly [value: string, label: string])[];

function Choose({ label, value, options, onChange }: { label: string; value: string; options: Options; onChange: (value: string) => void }): ReactNode {
  const id = useId();
  return (
    <div className="min-w-0">
      <label htmlFor={id} className="block text-ink-2">
        {label}
      </label>
      <select id={id} className={CONTROL} value={value} onChange={(event) => onChange(event.target.value)}>
        {options.map(([each, text]) => (
          <option key={each} value={each}>
            {visibleName(text, 100)}
          </option>
        ))}
      </select>
    </div>
  );
}

/** Return the chosen value if it is among the options, else the first. */
function chosenOf(chosen: string | null, options: Options): string | null {
  return options.find(([value]) => value === chosen)?.[0] ?? options[0]?.[0] ?? null;
}

/** Return the nodes that a document has, those that run again first. */
function AddParam({ document, preview, pointNode, onAdd }: Props): ReactNode {
  const names = useNodeNames();
  const [chosenNode, setNode] = useState<{ node: string; of: string } | null>(null);
  const [chosenName, setName] = useState<string | null>(null);
  const nodes = useMemo((): Options => {
    const components = isObject(document) && isObject(document.components) ? Object.keys(document.components) : [];
    const first = [pointNode, ...(preview?.runs_again.map((node) => node.node_id) ?? []), ...(preview?.may_run ?? [])];
    const ordered = [...new Set([...first.filter((id) => components.includes(id)), ...components])];
    return ordered.filter((id) => paramsOf(document, id).size).map((id) => [id, names.get(id) ?? id]);
  }, [document, preview, pointNode, names]);
  if (document === null) return <p className="text-ink-2">{t.noDocument}</p>;
  const node = chosenOf(chosenNode?.of === pointNode ? chosenNode.node : pointNode, nodes);
  if (node === null) return <p className="text-ink-2">{document === undefined ? texts.copies.loading : t.none}</p>;
  const values = paramsOf(document, node);
  const params: Options = [...values.keys()].map((name) => [name, name]);
  const name = chosenOf(chosenName, params);
  const owner = visibleName(names.get(node) ?? node, 60);
  return (
    <>
      <div className="grid gap-2 sm:grid-cols-2">
        <Choose label={t.node} value={node} options={nodes} onChange={(value) => setNode({ node: value, of: pointNode })} />
        <Choose label={t.name} value={name ?? ""} options={params} onChange={setName} />
      </div>
      <Button
        className="self-start"
        disabled={name === null}
        onClick={() => name !== null && onAdd(newEdit("param", node, name, texts.copies.editOf(visibleName(name, 60), owner), values.get(name)))}
      >
        {t.add}
      </Button>
    </>
  );
}

function AddVariable({ variables, onAdd }: Pick<Props, "variables" | "onAdd">): ReactNode {
  const [chosen, setChosen] = useState<string | null>(null);
  if (variables === null) return <p className="text-ink-2">{t.noDocument}</p>;
  if (variables === undefined) return <p className="text-ink-2">{texts.copies.loading}</p>;
  const options: Options = [...variables.keys()].map((name) => [name, name]);
  const name = chosenOf(chosen, options);
  if (name === null) return <p className="text-ink-2">{t.none}</p>;
  return (
    <>
      <Choose label={t.name} value={name} options={options} onChange={setChosen} />
      <Button className="self-start" onClick={() => onAdd(newEdit("variable", "", name, texts.copies.variable(visibleName(name, 60)), variables.get(name)))}>
        {t.add}
      </Button>
    </>
  );
}

function AddOutput({ preview, onAdd }: Props): ReactNode {
  const run = useRunState();
  const names = useNodeNames();
  const [chosenNode, setNode] = useState<string | null>(null);
  const [chosenStep, setStep] = useState<string | null>(null);
  const nodes = useMemo((): Options => {
    const again = new Map(preview?.runs_again.map((node) => [node.node_id, node.count]));
    const withReused = [...run.nodes].filter(([id, node]) => (again.get(id) ?? 0) < node.steps);
    return withReused.map(([id]) => [id, names.get(id) ?? id]);
  }, [preview, run, names]);
  const node = chosenOf(chosenNode, nodes);
  const steps = useMemo((): Options => {
    const rows = node === null ? [] : stepsOfNode(run, node).slice(0, MOST_STEPS);
    return rows.map((row) => [run.steps.id(row), stepText(run, row)]);
  }, [run, node]);
  const step = chosenOf(chosenStep, steps);
  if (!preview) return <p className="text-ink-2">{t.computing}</p>;
  if (node === null || step === null) return <p className="text-ink-2">{t.noReused}</p>;
  return (
    <>
      <div className="grid gap-2 sm:grid-cols-2">
        <Choose label={t.node} value={node} options={nodes} onChange={setNode} />
        {steps.length > 1 ? <Choose label={t.whichStep} value={step} options={steps} onChange={setStep} /> : null}
      </div>
      {steps.length === MOST_STEPS ? <p className="text-ink-2">{t.firstSteps(MOST_STEPS)}</p> : null}
      <OutputName key={step} stepId={step} owner={visibleName(names.get(node) ?? node, 60)} place={placeOf(run, step)} onAdd={onAdd} />
    </>
  );
}

function OutputName({ stepId, owner, place, onAdd }: { stepId: string; owner: string; place: string; onAdd: (edit: Edit) => void }): ReactNode {
  const { store } = useRunContext();
  const runId = store.getState().header?.id ?? "";
  const [chosen, setChosen] = useState<string | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const { data, error } = useQuery({ queryKey: ["activation", runId, stepId], queryFn: ({ signal }) => readActivation(runId, stepId, signal) });
  const outputs = data?.outputs ?? {};
  const options: Options = Object.keys(outputs).filter((name) => !name.startsWith("_")).map((name) => [name, name]);
  const name = chosenOf(chosen, options);
  if (error) return <p className="text-red">{error.message}</p>;
  if (!data) return <p className="text-ink-2">{texts.copies.loading}</p>;
  if (name === null) return <p className="text-ink-2">{t.noOutputs}</p>;
  const add = async (): Promise<void> => {
    setFailure(null);
    const shown = outputs[name];
    try {
      if (isObject(shown) && shown.$gone === true) throw new Error(t.gone);
      const isCut = isObject(shown) && "$preview" in shown;
      onAdd(newEdit("output", place, name, texts.copies.editedOutput(visibleName(name, 60), owner), isCut ? await readWholeValue(runId, stepId, "outputs", name) : shown));
    } catch (problem) {
      setFailure(problem instanceof Error ? problem.message : String(problem));
    }
  };
  return (
    <>
      <Choose label={t.name} value={name} options={options} onChange={setChosen} />
      {failure === null ? null : (
        <p role="alert" className="text-red">
          {failure}
        </p>
      )}
      <Button className="self-start" onClick={() => void add()}>
        {t.add}
      </Button>
    </>
  );
}
