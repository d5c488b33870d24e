/** Pickers of what a tenant has: models, knowledge bases, memories and MCP servers. Other values are kept and said. */
import { useState, type ReactNode } from "react";

import type { ChoiceKind } from "../api/components";
import type { Choice } from "../api/replies";
import { useChoices } from "../catalogue/catalogue-query";
import { isMembers } from "../catalogue/parse-catalogue";
import { texts } from "../texts";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { FieldFrame } from "./field-frame";
import { useField, type FieldState } from "./form-context";
import type { FieldSpec } from "./form-schema";
import type { FieldProps } from "./plain-fields";
import { SearchPopover, type ListItem } from "./search-list";

const t = texts.nodeForm;
const REFERENCE = /[@{]/;

/** One model. */
export function ModelField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const value = typeof state.value === "string" ? state.value : "";
  return (
    <FieldFrame
      field={field}
      state={state}
      isGroup
      actions={
        value === "" || state.isReadOnly ? null : (
          <Button aria-label={t.removeEntry(field.title)} onClick={() => state.set("")}>
            {t.remove}
          </Button>
        )
      }
    >
      <Picker field={field} state={state} kind="model" onPick={(choice) => state.set(choice.value)}>
        {value === "" ? <span className="text-ink-2">{t.chooseModel}</span> : <ChosenName kind="model" value={value} />}
      </Picker>
    </FieldFrame>
  );
}

/** Several knowledge bases or memories. A document may have one as a text. */
export function ChoicesField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const kind = field.widget === "memory" ? "memory" : "knowledge_base";
  const listed: unknown[] = Array.isArray(state.value) ? state.value : typeof state.value === "string" && state.value !== "" ? [state.value] : [];
  const without = (place: number): unknown[] => listed.filter((_, at) => at !== place);
  return (
    <FieldFrame field={field} state={state} isGroup>
      <ChosenList listed={listed.map(String)} kind={kind} title={field.title} isReadOnly={state.isReadOnly} onRemove={(place) => state.set(without(place))} />
      <Picker field={field} state={state} kind={kind} onPick={(choice) => (listed.includes(choice.value) ? undefined : state.set([...listed, choice.value]))}>
        <span className="text-ink-2">{kind === "memory" ? t.addMemory : t.addKnowledgeBase}</span>
      </Picker>
    </FieldFrame>
  );
}

/** MCP servers, each with those of its tools that the agent has. */
export function ServersField({ field, path }: FieldProps): ReactNode {
  const state = useField(path);
  const listed: unknown[] = Array.isArray(state.value) ? state.value : [];
  const ids = listed.map((each) => (isMembers(each) && typeof each.mcp_id === "string" ? each.mcp_id : ""));
  return (
    <FieldFrame field={field} state={state} isGroup>
      <ChosenList
        listed={ids}
        kind="mcp"
        title={field.title}
        isReadOnly={state.isReadOnly}
        detail={(place) => toolsOf(listed[place])}
        onRemove={(place) => state.set(listed.filter((_, at) => at !== place))}
      />
      <Picker field={field} state={state} kind="mcp" onPick={(choice) => (ids.includes(choice.value) ? undefined : state.set([...listed, { mcp_id: choice.value, tools: {} }]))}>
        <span className="text-ink-2">{t.addServer}</span>
      </Picker>
    </FieldFrame>
  );
}

function toolsOf(server: unknown): string {
  const tools = isMembers(server) && isMembers(server.tools) ? Object.keys(server.tools) : [];
  return tools.length === 0 ? t.allTools : tools.map((name) => visibleName(name, 40)).join(", ");
}

interface ChosenListProps {
  listed: readonly string[];
  kind: ChoiceKind;
  title: string;
  isReadOnly: boolean;
  detail?: (place: number) => string;
  onRemove: (place: number) => void;
}

function ChosenList({ listed, kind, isReadOnly, detail, onRemove }: ChosenListProps): ReactNode {
  if (listed.length === 0) return null;
  return (
    <ul className="flex flex-col gap-1">
      {listed.map((value, place) => (
        <li key={`${place}:${value}`} className="flex min-h-7 items-center gap-1 rounded border border-line px-1.5">
          <span className="min-w-0 flex-1">
            <ChosenName kind={kind} value={value} />
            {detail ? <span className="block text-xs text-ink-2 [overflow-wrap:anywhere]">{detail(place)}</span> : null}
          </span>
          {isReadOnly ? null : (
            <Button aria-label={t.removeEntry(visibleName(value, 40))} onClick={() => onRemove(place)} className="border-transparent!">
              ✕
            </Button>
          )}
        </li>
      ))}
    </ul>
  );
}

/** The name of a value, or the value with the word that this tenant has none such. */
function ChosenName({ kind, value }: { kind: ChoiceKind; value: string }): ReactNode {
  const { data } = useChoices(kind, searchOf(kind, value), value !== "" && kind !== "mcp");
  const { data: servers } = useChoices("mcp", "", kind === "mcp");
  const known = kind === "mcp" ? servers : data;
  const found = known?.choices.find((each) => sameValue(kind, each, value));
  const isReference = kind !== "model" && kind !== "mcp" && REFERENCE.test(value);
  return (
    <span className="block min-w-0 [overflow-wrap:anywhere]" title={visibleName(value, 200)}>
      {found ? visibleName(found.label, 80) : visibleName(value, 80) || t.none}
      {found ? <span className="text-xs text-ink-2"> {detailOf(kind, found)}</span> : null}
      {known && !found && !isReference && !known.more ? <span className="block text-xs text-ink-2">{t.notAmong[kind]}</span> : null}
    </span>
  );
}

/** What to search for to find a value: a model is found by its name without the vendor, which is written in several ways. */
function searchOf(kind: ChoiceKind, value: string): string {
  if (kind !== "model") return "";
  const name = value.split("@")[0] ?? "";
  return name.split("___")[0] ?? name;
}

function sameValue(kind: ChoiceKind, choice: Choice, value: string): boolean {
  if (choice.value === value) return true;
  if (kind === "model") return choice.value === value.replace("@default@", "@");
  return kind !== "mcp" && choice.label === value; // knowledge bases and memories are named, too
}

interface PickerProps {
  field: FieldSpec;
  state: FieldState;
  kind: ChoiceKind;
  onPick: (choice: Choice) => void;
  children: ReactNode;
}

/** The control of the field: a button that opens the list of choices. */
function Picker({ field, state, kind, onPick, children }: PickerProps): ReactNode {
  const [isOpen, setOpen] = useState(false);
  const [words, setWords] = useState("");
  const { data, isFetching, error } = useChoices(kind, words, isOpen);
  const choices = (data?.choices ?? []).filter((each) => isOfKind(each, field.kinds));
  const note = error ? error.message : isFetching && !data ? texts.runs.loading : data?.more ? t.more : undefined;
  return (
    <SearchPopover
      isOpen={isOpen}
      onOpen={(next) => {
        setWords("");
        setOpen(next);
      }}
      label={t.searchFor(field.title)}
      items={choices.map((each) => itemOf(kind, each))}
      words={words}
      onWords={setWords}
      onSelect={(key) => {
        const choice = choices.find((each) => each.value === key);
        setOpen(false);
        if (choice) onPick(choice);
      }}
      {...(note === undefined ? {} : { note })}
    >
      <button
        type="button"
        {...state.attributes}
        aria-labelledby={`${state.id}-label ${state.id}`}
        disabled={state.isReadOnly}
        className="flex min-h-7 w-full min-w-0 items-center gap-1 rounded border border-line-strong bg-surface px-1.5 text-left enabled:hover:bg-raised disabled:bg-panel aria-invalid:border-red"
      >
        <span className="min-w-0 flex-1">{children}</span>
        <span aria-hidden="true" className="text-ink-2">
          ▾
        </span>
      </button>
    </SearchPopover>
  );
}

function itemOf(kind: ChoiceKind, choice: Choice): ListItem {
  return { key: choice.value, label: visibleName(choice.label, 80), detail: detailOf(kind, choice), group: "" };
}

function detailOf(kind: ChoiceKind, choice: Choice): string {
  const { vendor, instance, documents, description } = choice.details;
  if (kind === "model") return [vendor, instance === "default" ? "" : instance].filter((each) => typeof each === "string" && each !== "").join(" · ");
  if (kind === "knowledge_base") return typeof documents === "number" ? t.documents(documents) : "";
  return typeof description === "string" ? visibleName(description, 60) : "";
}

function isOfKind(choice: Choice, kinds: readonly string[]): boolean {
  const own = choice.details.kinds;
  return kinds.length === 0 || !Array.isArray(own) || own.length === 0 || kinds.some((kind) => own.includes(kind));
}
