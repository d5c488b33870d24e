/** A new agent: from a template, blank, from a file, or as a copy of another one. */
import * as Tabs from "@radix-ui/react-tabs";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState, type DragEvent, type FormEvent, type ReactNode } from "react";

import { createAgent, listAgentPage, listChoices, listTemplates, placeOf, type NewAgentChoice, type Template } from "../api/agents";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { Dialog } from "../ui/dialog";
import { bytes } from "../ui/format";
import { Button } from "../ui/parts";
import { TabList } from "../ui/tabs";
import { asJson } from "../ui/values";
import { visibleName, visibleText } from "../ui/visible-text";
import { FIELD, PRIMARY } from "./looks";
import { useClick } from "./use-click";

const t = texts.newAgent;
const WAYS = ["template", "blank", "file", "copy"] as const;
type Way = (typeof WAYS)[number];

export function NewAgentDialog({ onClose }: { onClose: () => void }): ReactNode {
  const navigate = useNavigate();
  const client = useQueryClient();
  const announce = useAnnounce();
  const [way, setWay] = useState<Way>("template");
  const [title, setTitle] = useState("");
  const [template, setTemplate] = useState<string | null>(null);
  const [model, setModel] = useState("");
  const [copyOf, setCopyOf] = useState<string | null>(null);
  const [file, setFile] = useState<File | null>(null);
  const [pasted, setPasted] = useState("");
  const [missing, setMissing] = useState<string | null>(null);
  const click = useClick();
  const templates = useQuery({ queryKey: ["templates"], queryFn: ({ signal }) => listTemplates(signal) });
  const chosenTemplate = template ?? templates.data?.[0]?.id ?? null;

  const choose = (): NewAgentChoice | string => {
    switch (way) {
      case "blank":
        return { title };
      case "template":
        return chosenTemplate === null ? texts.agents.loading : { title, template: chosenTemplate, model };
      case "copy":
        return copyOf === null ? t.chooseAgent : { title, copyOf };
      case "file": {
        if (file) return { title, document: file };
        return pasted.trim() ? { title, document: new Blob([pasted]) } : t.missingDocument;
      }
    }
  };
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    const choice = choose();
    setMissing(typeof choice === "string" ? choice : null);
    if (typeof choice === "string") return;
    void click.send(async (key) => {
      const made = await createAgent(choice, key);
      announce(t.created(visibleName(made.title, 80)));
      void client.invalidateQueries({ queryKey: ["agents"] });
      await navigate({ to: "/agents/$agentId", params: { agentId: made.id } });
    });
  };
  const show = (next: string): void => {
    setWay(WAYS.find((each) => each === next) ?? "template");
    setMissing(null);
    click.clear();
  };
  return (
    <Dialog title={t.title} onClose={onClose}>
      <form noValidate onSubmit={submit} className="flex min-w-0 flex-col gap-3">
        <Tabs.Root value={way} onValueChange={show} className="flex min-w-0 flex-col gap-3">
          <TabList label={t.title} tabs={WAYS} names={t.ways} className="border-b border-line" />
          <Tabs.Content value="template" className="flex min-w-0 flex-col gap-3">
            <TemplateChoice templates={templates.data} error={templates.error} chosen={chosenTemplate} onChoose={setTemplate} />
            <ModelChoice model={model} onChange={setModel} />
          </Tabs.Content>
          <Tabs.Content value="blank">
            <p>{t.blank}</p>
          </Tabs.Content>
          <Tabs.Content value="file" className="min-w-0">
            <FileChoice file={file} onFile={setFile} pasted={pasted} onPaste={setPasted} isInvalid={click.error !== null || missing !== null} />
          </Tabs.Content>
          <Tabs.Content value="copy" className="min-w-0">
            <CopyChoice chosen={copyOf} onChoose={setCopyOf} />
          </Tabs.Content>
        </Tabs.Root>
        <label className="flex flex-col gap-1">
          <span className="font-medium">{t.name}</span>
          <input className={FIELD} value={title} maxLength={255} autoComplete="off" onChange={(event) => setTitle(event.target.value)} />
          {way === "blank" ? null : <span className="text-ink-2">{t.nameHint}</span>}
        </label>
        <Failure missing={missing} error={click.error} />
        <div className="flex justify-end gap-2">
          <Button className="px-3! py-1!" onClick={onClose}>
            {t.cancel}
          </Button>
          <Button type="submit" disabled={click.isBusy} className={PRIMARY}>
            {t.create}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function Failure({ missing, error }: { missing: string | null; error: Error | null }): ReactNode {
  const text = missing ?? error?.message;
  if (text === undefined) return null;
  const place = placeOf(error);
  return (
    <p role="alert" data-tone="red" className="text-tone">
      {visibleName(text, 500)} {place ? <strong>{t.atPlace(place.line, place.column)}</strong> : null}
    </p>
  );
}

interface TemplateProps {
  templates: readonly Template[] | undefined;
  error: Error | null;
  chosen: string | null;
  onChoose: (id: string) => void;
}

function TemplateChoice({ templates, error, chosen, onChoose }: TemplateProps): ReactNode {
  if (error) return <p role="alert">{error.message}</p>;
  if (!templates) return <p className="text-ink-2">{texts.agents.loading}</p>;
  return (
    <fieldset className="min-w-0">
      <legend className="sr-only">{t.templates}</legend>
      <ul className="flex max-h-[42dvh] flex-col gap-1 overflow-auto p-0.5">
        {templates.map((each) => (
          <li key={each.id}>
            <label className={`flex cursor-pointer gap-2 rounded border p-2 ${each.id === chosen ? "border-accent bg-accent-soft" : "border-line hover:bg-panel"}`}>
              <input type="radio" name="template" className="mt-0.5 size-5 shrink-0" checked={each.id === chosen} onChange={() => onChoose(each.id)} aria-label={visibleName(each.title, 80)} />
              <span className="min-w-0">
                <span className="block font-medium">{visibleName(each.title, 80)}</span>
                <span className="block text-ink-2">{visibleText(each.description)}</span>
                {each.id === chosen ? (
                  <span className="mt-1 block whitespace-pre-wrap text-ink-2 [overflow-wrap:anywhere]">
                    {t.example} <span className="text-ink">{visibleText(exampleText(each.example))}</span>
                  </span>
                ) : null}
              </span>
            </label>
          </li>
        ))}
      </ul>
    </fieldset>
  );
}

function exampleText({ query, inputs }: Template["example"]): string {
  return typeof query === "string" && query ? query : asJson(inputs ?? {});
}

function ModelChoice({ model, onChange }: { model: string; onChange: (model: string) => void }): ReactNode {
  const { data } = useQuery({ queryKey: ["choices", "model"], queryFn: ({ signal }) => listChoices("model", undefined, signal) });
  const choices = (data?.choices ?? []).filter(({ value, details }) => !value.startsWith("echo@Easel") && isChat(details));
  return (
    <label className="flex flex-col gap-1">
      <span className="font-medium">{t.model}</span>
      <select className={FIELD} value={model} onChange={(event) => onChange(event.target.value)}>
        <option value="">{t.builtIn}</option>
        {choices.map((choice) => (
          <option key={choice.value} value={choice.value}>
            {visibleName(choice.value, 120)}
          </option>
        ))}
      </select>
      <span className="text-ink-2">{data?.more ? t.moreModels : t.modelHint}</span>
    </label>
  );
}

function isChat(details: unknown): boolean {
  const kinds = typeof details === "object" && details !== null ? (details as Record<string, unknown>).kinds : undefined;
  return !Array.isArray(kinds) || kinds.includes("chat") || kinds.includes("vision");
}

interface FileProps {
  file: File | null;
  onFile: (file: File | null) => void;
  pasted: string;
  onPaste: (text: string) => void;
  isInvalid: boolean;
}

function FileChoice({ file, onFile, pasted, onPaste, isInvalid }: FileProps): ReactNode {
  const [isOver, setOver] = useState(false);
  const drop = (event: DragEvent): void => {
    event.preventDefault();
    setOver(false);
    const dropped = event.dataTransfer.files[0];
    if (dropped) onFile(dropped);
  };
  return (
    <div
      className={`flex flex-col gap-2 rounded border border-dashed p-3 ${isOver ? "border-accent bg-accent-soft" : "border-line-strong"}`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <p>{t.file}</p>
      <label className="flex flex-col gap-1">
        <span className="font-medium">{t.choose}</span>
        <input type="file" accept=".json,application/json,text/plain" className="max-w-full" onChange={(event) => onFile(event.target.files?.[0] ?? null)} />
      </label>
      <p className="text-ink-2">{t.drop}</p>
      {file ? (
        <p className="flex flex-wrap items-center gap-2" role="status">
          {t.chosen(visibleName(file.name, 80), bytes(file.size))}
          <Button onClick={() => onFile(null)}>{t.removeFile}</Button>
        </p>
      ) : (
        <label className="flex flex-col gap-1">
          <span className="font-medium">{t.paste}</span>
          <textarea rows={7} spellCheck={false} aria-invalid={isInvalid} className={`${FIELD} font-mono text-xs`} value={pasted} onChange={(event) => onPaste(event.target.value)} />
        </label>
      )}
    </div>
  );
}

function CopyChoice({ chosen, onChoose }: { chosen: string | null; onChoose: (id: string) => void }): ReactNode {
  const [q, setQ] = useState("");
  const { data, error } = useQuery({
    queryKey: ["agents", "to copy", q],
    queryFn: ({ signal }) => listAgentPage({ q, limit: 30 }, signal),
    placeholderData: (known) => known,
  });
  return (
    <div className="flex flex-col gap-2">
      <input type="search" className={FIELD} aria-label={t.searchCopy} placeholder={t.searchCopy} value={q} maxLength={200} onChange={(event) => setQ(event.target.value)} />
      {error ? <p role="alert">{error.message}</p> : null}
      <fieldset>
        <legend className="sr-only">{t.copyOf}</legend>
        <ul className="max-h-60 overflow-auto p-0.5">
          {data?.agents.map((agent) => (
            <li key={agent.id}>
              <label className="flex min-h-8 cursor-pointer items-center gap-2 rounded px-1 hover:bg-panel">
                <input type="radio" name="copy-of" className="size-5 shrink-0" checked={agent.id === chosen} onChange={() => onChoose(agent.id)} />
                <bdi className="min-w-0 truncate">{visibleName(agent.title, 120)}</bdi>
              </label>
            </li>
          ))}
        </ul>
      </fieldset>
      {data && !data.agents.length ? <p className="text-ink-2">{t.noCopy}</p> : null}
      {data?.next ? <p className="text-ink-2">{t.moreCopies}</p> : null}
    </div>
  );
}
