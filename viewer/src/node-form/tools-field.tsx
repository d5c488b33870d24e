/** The tools of an Agent, each with a form of its own. */
import { useMemo, useState, type ReactNode } from "react";

import type { ComponentDescription } from "../catalogue/catalogue";
import { useCatalogue } from "../catalogue/catalogue-query";
import { isMembers } from "../catalogue/parse-catalogue";
import { texts } from "../texts";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { FieldControl, FieldList } from "./field-list";
import { FieldFrame } from "./field-frame";
import { FindingTexts, useField, useForm } from "./form-context";
import { pathText, type Path } from "./form-paths";
import { fieldOf, fieldsOf, otherKeys } from "./form-schema";
import { EntryActions, moved, without } from "./list-actions";
import type { FieldProps } from "./plain-fields";
import { SearchPopover } from "./search-list";

const t = texts.nodeForm;
const NAME = fieldOf("name", { type: "string", title: t.toolName, description: t.toolNameHelp });
const PARAMS = fieldOf("params", { type: "object", title: t.parameters, "x-easel-widget": "json" });

export function ToolsField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const { data: catalogue } = useCatalogue();
  const listed: readonly unknown[] = Array.isArray(state.value) ? state.value : [];
  const tools = catalogue?.tools ?? [];
  return (
    <FieldFrame field={{ ...field, default: undefined }} state={state} isGroup>
      <div role="group" aria-labelledby={`${state.id}-label`} tabIndex={-1} {...state.attributes} className="flex flex-col gap-2">
        {listed.map((tool, place) => (
          <Tool
            key={place}
            tool={tool}
            description={descriptionOf(tool, tools)}
            path={[...path, place]}
            place={place}
            count={listed.length}
            onMove={(to) => state.set(moved(listed, place, to))}
            onRemove={() => state.set(without(listed, place))}
          />
        ))}
        {state.isReadOnly ? null : <AddTool tools={tools} onAdd={(tool) => state.set([...listed, newTool(tool)])} />}
      </div>
    </FieldFrame>
  );
}

function AddTool({ tools, onAdd }: { tools: readonly ComponentDescription[]; onAdd: (tool: ComponentDescription) => void }): ReactNode {
  const [isOpen, setOpen] = useState(false);
  const [words, setWords] = useState("");
  const found = tools.filter((each) => `${each.name} ${each.title} ${each.description}`.toLowerCase().includes(words.trim().toLowerCase()));
  return (
    <SearchPopover
      isOpen={isOpen}
      onOpen={(next) => {
        setWords("");
        setOpen(next);
      }}
      label={t.searchTools}
      items={found.map((each) => ({ key: each.name, label: each.title, detail: each.description, group: "" }))}
      words={words}
      onWords={setWords}
      onSelect={(key) => {
        const tool = tools.find((each) => each.name === key);
        setOpen(false);
        if (tool) onAdd(tool);
      }}
    >
      <Button className="self-start">{t.addTool}</Button>
    </SearchPopover>
  );
}

interface ToolProps {
  tool: unknown;
  description: ComponentDescription | null;
  path: Path;
  place: number;
  count: number;
  onMove: (to: number) => void;
  onRemove: () => void;
}

function Tool({ tool, description, path, place, count, onMove, onRemove }: ToolProps): ReactNode {
  const state = useField(path);
  const { focused, findings } = useForm();
  const [isOpen, setOpen] = useState(false);
  const fields = useMemo(() => (description ? fieldsOf(description.params).map((each) => (each.widget === "outputs" ? { ...each, widget: "hidden" as const } : each)) : []), [description]);
  const params = isMembers(tool) && isMembers(tool.params) ? tool.params : {};
  const at = pathText(path);
  const isNeeded = (focused?.startsWith(at) ?? false) || findings.some((each) => each.field?.startsWith(at));
  const others = otherKeys(fields, params);
  const title = visibleName(description?.title ?? nameOf(tool), 60);
  return (
    <div className="rounded border border-line">
      <div className="flex items-start">
        <details open={isOpen || isNeeded} onToggle={(event) => setOpen(event.currentTarget.open)} className="min-w-0 flex-1">
          <summary className="min-h-7 cursor-pointer px-2 py-1 font-medium">{title}</summary>
          <div className="flex flex-col gap-3 p-2">
            <FindingTexts findings={state.findings} />
            {isMembers(tool) ? (
              <>
                <FieldControl field={NAME} path={[...path, "name"]} />
                {description ? <FieldList fields={fields} path={[...path, "params"]} values={params} /> : <FieldControl field={PARAMS} path={[...path, "params"]} />}
                {description && others.length > 0 ? others.map((key) => <FieldControl key={key} field={fieldOf(key, { title: key, "x-easel-widget": "json" })} path={[...path, "params", key]} />) : null}
              </>
            ) : (
              <p className="text-ink-2">{t.plainTool}</p>
            )}
          </div>
        </details>
        {state.isReadOnly ? null : <EntryActions name={title} place={place} count={count} onMove={onMove} onRemove={onRemove} />}
      </div>
    </div>
  );
}

function nameOf(tool: unknown): string {
  if (typeof tool === "string") return tool;
  return isMembers(tool) && typeof tool.component_name === "string" ? tool.component_name : t.unknownTool;
}

function descriptionOf(tool: unknown, tools: readonly ComponentDescription[]): ComponentDescription | null {
  const name = nameOf(tool).toLowerCase();
  return tools.find((each) => each.name.toLowerCase() === name) ?? null;
}

function newTool(tool: ComponentDescription): unknown {
  return { component_name: tool.name, name: tool.name, params: structuredClone(tool.defaults) };
}
