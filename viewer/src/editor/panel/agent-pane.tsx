/** The right column without a selection: the agent's title and description, and its variables. */
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { readAgent } from "../../api/agents";
import { texts } from "../../texts";
import { Button } from "../../ui/parts";
import { visibleName } from "../../ui/visible-text";
import { removeVariable, setVariable, variablesOf, type Variable } from "../document/commands";
import { readJson, writeJson, type Json } from "../document/json";
import { useDocument, useEditor } from "../editor-context";
import { AgentTitle } from "./agent-title";

const t = texts.editor.panel;
const CONTROL = "min-h-7 w-full min-w-0 rounded border border-line-strong bg-surface px-1.5 aria-invalid:border-red";
const TYPES = ["string", "number", "boolean", "object", "array<string>", "array<number>", "array<boolean>", "array<object>"] as const;
const FIRST_VALUES: Readonly<Record<string, Json>> = { string: "", number: 0, boolean: false, object: {} };

export function useAgent(agentId: string) {
  return useQuery({ queryKey: ["agent", agentId], queryFn: ({ signal }) => readAgent(agentId, signal) });
}

export function AgentPane(): ReactNode {
  const { agentId, isReadOnly, perform } = useEditor();
  const document = useDocument();
  const { data: agent } = useAgent(agentId);
  const variables = variablesOf(document);
  const add = (): void => {
    const names = new Set(variables.map((each) => each.name));
    let number = 1;
    while (names.has(`variable_${number}`)) number++;
    perform(texts.editor.done.variable, (now) => setVariable(now, null, { name: `variable_${number}`, type: "string", value: "", description: "" }));
  };
  return (
    <div className="flex flex-col gap-3 p-3">
      {agent ? <AgentTitle key={agent.id} agent={agent} /> : null}
      <section aria-label={t.variables}>
        <h2 className="font-semibold">{t.variables}</h2>
        <p className="mb-2 text-xs text-ink-2">{t.variablesHint}</p>
        {variables.length ? null : <p className="mb-2 text-ink-2">{t.noVariables}</p>}
        {variables.map((variable) => (
          <VariableRow key={variable.name} variable={variable} />
        ))}
        {isReadOnly ? null : <Button onClick={add}>{t.addVariable}</Button>}
      </section>
    </div>
  );
}

function VariableRow({ variable }: { variable: Variable }): ReactNode {
  const { isReadOnly, perform } = useEditor();
  const [name, setName] = useState(variable.name);
  const change = (part: Partial<Variable>): boolean =>
    perform(texts.editor.done.variable, (now) => setVariable(now, variable.name, { ...variable, ...part }), `variable ${variable.name} ${Object.keys(part).join(" ")}`);
  const label = (field: string): string => `${field}: ${visibleName(variable.name, 60)}`;
  return (
    <fieldset disabled={isReadOnly} className="mb-2 flex flex-col gap-1 rounded border border-line p-2">
      <legend className="sr-only">{visibleName(variable.name, 60)}</legend>
      <div className="flex gap-1">
        <input
          aria-label={label(t.variableName)}
          value={name}
          maxLength={100}
          onChange={(event) => setName(event.target.value)}
          onBlur={() => {
            if (name !== variable.name && !change({ name })) setName(variable.name);
          }}
          className={`${CONTROL} font-mono`}
        />
        <select
          aria-label={label(t.variableType)}
          value={variable.type}
          onChange={(event) => change({ type: event.target.value, value: FIRST_VALUES[event.target.value] ?? [] })}
          className={`${CONTROL} max-w-32`}
        >
          {[...new Set<string>([...TYPES, variable.type])].map((type) => (
            <option key={type} value={type}>
              {visibleName(type, 40)}
            </option>
          ))}
        </select>
        <Button aria-label={t.removeVariable(visibleName(variable.name, 60))} onClick={() => perform(texts.editor.done.variable, (now) => removeVariable(now, variable.name))}>
          ✕
        </Button>
      </div>
      <VariableValue label={label(t.variableValue)} variable={variable} onChange={(value) => change({ value })} />
      <input aria-label={label(t.variableDescription)} placeholder={t.variableDescription} value={variable.description} onChange={(event) => change({ description: event.target.value })} className={CONTROL} />
    </fieldset>
  );
}

function VariableValue({ label, variable: { type, value }, onChange }: { label: string; variable: Variable; onChange: (value: Json) => void }): ReactNode {
  const written = typeof value === "string" && type === "string" ? value : writeJson(value);
  const [typed, setTyped] = useState({ text: written, written });
  const text = typed.written === written ? typed.text : written;
  if (type === "boolean") {
    return (
      <label className="flex min-h-6 items-center gap-1">
        <input type="checkbox" aria-label={label} className="size-5" checked={value === true} onChange={(event) => onChange(event.target.checked)} />
        {String(value === true)}
      </label>
    );
  }
  const parsed = parse(type, text);
  const onText = (next: string): void => {
    const result = parse(type, next);
    setTyped({ text: next, written: result === null ? written : typeof result.value === "string" && type === "string" ? result.value : writeJson(result.value) });
    if (result !== null) onChange(result.value);
  };
  return (
    <textarea
      aria-label={label}
      aria-invalid={parsed === null}
      rows={type === "string" || type === "number" ? 1 : 3}
      value={text}
      onChange={(event) => onText(event.target.value)}
      className={`${CONTROL} py-1 ${type === "string" ? "" : "font-mono text-xs"}`}
    />
  );
}

/** Return the value that a text stands for; null if it is none of this type. */
function parse(type: string, text: string): { value: Json } | null {
  if (type === "string") return { value: text };
  try {
    const value = readJson(text);
    return type === "number" && typeof value !== "number" ? null : { value };
  } catch {
    return null;
  }
}
