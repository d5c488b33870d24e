/** The nodes that a branch leads to. Where the editor draws edges, they are those of the branch's handle. */
import type { ReactNode } from "react";

import type { Handles } from "../catalogue/catalogue";
import { texts } from "../texts";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { textsIn } from "./document-nodes";
import { CONTROL, FieldFrame } from "./field-frame";
import { useField, useForm } from "./form-context";
import { valueAt, type Path } from "./form-paths";
import type { FieldProps } from "./plain-fields";

const t = texts.nodeForm;
const EXCEPTION = "agentException";

export function NodesField({ field, path }: FieldProps): ReactNode {
  const { targets, component, form, branchTargets, onBranchTargets } = useForm();
  const state = useField(path);
  const handle = component ? handleOf(component.handles, path, form) : null;
  const drawn = handle === null ? [] : (branchTargets?.[handle] ?? []);
  const listed = drawn.length > 0 ? drawn : textsIn(state.value); // a category without edges may have its targets in its row
  const set = (ids: readonly string[]): void => {
    if (handle !== null && onBranchTargets) onBranchTargets(handle, ids);
    else state.set(ids);
  };
  const others = targets.filter((each) => !listed.includes(each.nodeId));
  const nameOf = (id: string): string => visibleName(targets.find((each) => each.nodeId === id)?.name ?? id, 60);
  return (
    <FieldFrame field={{ ...field, default: undefined }} state={state}>
      {listed.length === 0 ? null : (
        <ul className="flex flex-wrap gap-1">
          {listed.map((id) => (
            <li key={id} className="flex min-h-6 max-w-full items-center rounded border border-line bg-panel pl-1.5" title={visibleName(id, 100)}>
              <span className="min-w-0 truncate">{nameOf(id)}</span>
              {state.isReadOnly ? null : (
                <Button aria-label={t.removeEntry(nameOf(id))} onClick={() => set(listed.filter((each) => each !== id))} className="border-transparent! bg-transparent! px-1.5!">
                  ✕
                </Button>
              )}
            </li>
          ))}
        </ul>
      )}
      <select
        {...state.attributes}
        className={CONTROL}
        value=""
        disabled={state.isReadOnly || others.length === 0}
        onChange={(event) => (event.target.value === "" ? undefined : set([...listed, event.target.value]))}
      >
        <option value="">{others.length === 0 ? t.noTargets : t.addTarget}</option>
        {others.map((each) => (
          <option key={each.nodeId} value={each.nodeId}>
            {visibleName(each.name, 60)}
          </option>
        ))}
      </select>
    </FieldFrame>
  );
}

/** Return the handle of the edges that a field of targets stands for; null if it stands for none. */
export function handleOf(handles: Handles, path: Path, form: Readonly<Record<string, unknown>>): string | null {
  const [name, place] = path;
  if (path.length === 1 && name === "exception_goto") return handles.out.includes(EXCEPTION) ? EXCEPTION : null;
  if (!handles.per) return null;
  if (path.length === 1 && name === handles.per.else) return handles.per.else ?? null;
  if (name !== handles.per.field || typeof place !== "number") return null;
  const handle = handles.per.handle.replace("{n}", String(place + 1)).replace(/\{(\w+)\}/g, (_, key: string) => {
    const value = valueAt(form, [name, place, key]);
    return typeof value === "string" ? value : "";
  });
  return handle === "" ? null : handle;
}
