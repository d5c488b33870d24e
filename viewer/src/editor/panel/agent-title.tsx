/** The title and description of the agent. They are no part of the draft: a change is stored by itself, and undo does not know it. */
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useId, useRef, useState, type ReactNode } from "react";

import { changeAgent } from "../../api/drafts";
import type { AgentHead } from "../../api/replies";
import { texts } from "../../texts";
import { useAnnounce } from "../../ui/announcer";
import { visibleName } from "../../ui/visible-text";
import { useEditor } from "../editor-context";

const t = texts.editor.panel;
const CONTROL = "min-h-8 w-full min-w-0 rounded border border-line-strong bg-surface px-2 aria-invalid:border-red read-only:bg-panel";
const AFTER_LAST_CHANGE_MS = 1000;

type Field = "title" | "description";

export function AgentTitle({ agent }: { agent: AgentHead }): ReactNode {
  const { isReadOnly } = useEditor();
  const id = useId();
  const title = useSavedField(agent.id, "title", agent.title);
  const description = useSavedField(agent.id, "description", agent.description ?? "");
  return (
    <section aria-label={t.agent} className="flex flex-col gap-2">
      <label className="block">
        <span className="font-medium">{t.agentTitle}</span>
        <input
          value={title.text}
          readOnly={isReadOnly}
          maxLength={255}
          aria-invalid={title.error !== null}
          onChange={(event) => title.change(event.target.value)}
          onBlur={title.save}
          onKeyDown={(event) => (event.key === "Enter" && !event.nativeEvent.isComposing ? title.save() : undefined)}
          className={CONTROL}
        />
      </label>
      <FieldError error={title.error} />
      <div>
        <label htmlFor={id} className="font-medium">
          {t.agentDescription}
        </label>
        <textarea
          id={id}
          rows={3}
          value={description.text}
          readOnly={isReadOnly}
          maxLength={100_000}
          placeholder={t.noDescription}
          aria-invalid={description.error !== null}
          onChange={(event) => description.change(event.target.value)}
          onBlur={description.save}
          className={`${CONTROL} py-1`}
        />
      </div>
      <FieldError error={description.error} />
    </section>
  );
}

function FieldError({ error }: { error: string | null }): ReactNode {
  return error === null ? null : (
    <p role="alert" className="-mt-1 text-red">
      {visibleName(error, 300)}
    </p>
  );
}

interface SavedField {
  text: string;
  /** Why the text is not stored. */
  error: string | null;
  change: (text: string) => void;
  save: () => void;
}

/** A text that is stored a moment after its last change, and at once when its field is left. One request at a time. */
function useSavedField(agentId: string, field: Field, stored: string): SavedField {
  const client = useQueryClient();
  const announce = useAnnounce();
  const [typed, setTyped] = useState<string | null>(null); // null: what is stored
  const [error, setError] = useState<string | null>(null);
  const latest = useRef({ typed, stored, isSending: false });
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);

  /** Show what is stored again, unless more was typed: while the field has the focus, a space at the end stays. */
  const finish = (isLeft: boolean, text: string): void => {
    setError(null);
    if (!isLeft || latest.current.typed !== text) return;
    latest.current.typed = null;
    setTyped(null);
  };
  const save = async (isLeft: boolean): Promise<void> => {
    if (timer.current !== null) clearTimeout(timer.current);
    const { typed: text, stored: known, isSending } = latest.current;
    if (text === null || isSending) return;
    if (text.trim() === known) return finish(isLeft, text);
    if (field === "title" && !text.trim()) return setError(t.titleMissing);
    latest.current.isSending = true;
    try {
      const saved = await changeAgent(agentId, { [field]: text.trim() });
      client.setQueryData<AgentHead>(["agent", agentId], (head) => head && { ...head, title: saved.title, description: saved.description });
      void client.invalidateQueries({ queryKey: ["agents"] });
      latest.current.stored = saved[field] ?? "";
      announce(t.titleSaved);
      finish(isLeft, text);
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    } finally {
      latest.current.isSending = false;
      if (latest.current.typed !== null && latest.current.typed !== text) void save(isLeft); // typed meanwhile
    }
  };
  const latestSave = useRef(save);
  useEffect(() => {
    latestSave.current = save;
    latest.current.stored = stored;
  });
  useEffect(() => () => void latestSave.current(true), []); // another node is selected while the field has the focus

  return {
    text: typed ?? stored,
    error,
    change: (text) => {
      latest.current.typed = text;
      setTyped(text);
      if (timer.current !== null) clearTimeout(timer.current);
      timer.current = setTimeout(() => void latestSave.current(false), AFTER_LAST_CHANGE_MS);
    },
    save: () => void save(true),
  };
}
