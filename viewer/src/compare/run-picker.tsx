/** Choosing a run to compare: the original, its copies, recent runs of the agent, or any that a search finds. */
import { useQuery } from "@tanstack/react-query";
import { useId, useState, type FormEvent, type ReactNode } from "react";

import { listCopies } from "../api/copies";
import type { RunRow } from "../api/replies";
import { listRuns, readRun } from "../api/runs";
import { runLook } from "../store/run-status";
import { texts } from "../texts";
import { CopyMark } from "../ui/copy-mark";
import { Dialog } from "../ui/dialog";
import { duration, moment } from "../ui/format";
import { Button, Empty, StateBadge } from "../ui/parts";
import { visibleName, visibleText } from "../ui/visible-text";

const t = texts.compare;

/** A run as it is offered. */
type Offered = Pick<RunRow, "id" | "status" | "created_at" | "elapsed_ms" | "origin"> & { query?: string | null; agent_title?: string | null };

interface Props {
  title: string;
  /** The run that is compared; it is not offered. */
  runId: string;
  agentId: string;
  originId: string | null;
  onPick: (runId: string) => void;
  onClose: () => void;
}

export default function RunPicker({ title, onClose, ...props }: Props): ReactNode {
  const [typed, setTyped] = useState("");
  const [words, setWords] = useState("");
  const id = useId();
  const search = (event: FormEvent): void => {
    event.preventDefault();
    setWords(typed.trim().slice(0, 300));
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form role="search" onSubmit={search} className="mb-3 flex gap-2">
        <label htmlFor={id} className="sr-only">
          {t.search}
        </label>
        <input
          id={id}
          type="search"
          placeholder={t.placeholder}
          className="min-h-8 min-w-0 flex-1 rounded border border-line-strong bg-surface px-2"
          value={typed}
          onChange={(event) => setTyped(event.target.value)}
        />
        <Button type="submit">{t.search}</Button>
      </form>
      {words ? <Found words={words} {...props} /> : <Suggested {...props} />}
    </Dialog>
  );
}

type ListProps = Omit<Props, "title" | "onClose">;

function Found({ words, runId, onPick }: ListProps & { words: string }): ReactNode {
  const { data, error } = useQuery({ queryKey: ["pick-run", words], queryFn: ({ signal }) => listRuns({ q: words }, undefined, signal), staleTime: 0 });
  if (error) return <Failed error={error} />;
  if (!data) return <Empty>{t.loading}</Empty>;
  const runs = data.runs.filter((run) => run.id !== runId);
  return runs.length ? <Group title={t.found} runs={runs} onPick={onPick} /> : <Empty>{t.notFound}</Empty>;
}

function Suggested({ runId, agentId, originId, onPick }: ListProps): ReactNode {
  const { data, error } = useQuery({
    queryKey: ["suggested-runs", runId, agentId, originId],
    queryFn: async ({ signal }) => {
      const [original, copies, siblings, recent] = await Promise.all([
        originId === null ? null : readRun(originId, signal).catch(() => null), // it may be deleted
        listCopies(runId, signal),
        originId === null ? [] : listCopies(originId, signal),
        listRuns(agentId ? { agent_id: agentId } : {}, undefined, signal),
      ]);
      return { original, copies: [...copies, ...siblings], recent: recent.runs };
    },
    staleTime: 0,
  });
  if (error) return <Failed error={error} />;
  if (!data) return <Empty>{t.loading}</Empty>;
  const copies = unique(data.copies, new Set([runId]));
  const known = new Set([runId, ...(originId === null ? [] : [originId]), ...copies.map((run) => run.id)]);
  const recent = unique(data.recent, known);
  const original: Offered[] = data.original ? [{ ...data.original, query: queryOf(data.original.first_request?.query) }] : [];
  if (!original.length && !copies.length && !recent.length) return <Empty>{t.nothing}</Empty>;
  return (
    <>
      <Group title={t.original} runs={original} onPick={onPick} />
      <Group title={t.copies} runs={copies} onPick={onPick} />
      <Group title={t.recent} runs={recent} onPick={onPick} />
    </>
  );
}

function queryOf(query: unknown): string {
  return typeof query === "string" ? query : (JSON.stringify(query) ?? "");
}

function unique(runs: readonly RunRow[], without: ReadonlySet<string>): readonly RunRow[] {
  const seen = new Set(without);
  return runs.filter((run) => !seen.has(run.id) && seen.add(run.id));
}

function Group({ title, runs, onPick }: { title: string; runs: readonly Offered[]; onPick: (runId: string) => void }): ReactNode {
  const id = useId();
  if (!runs.length) return null;
  return (
    <section aria-labelledby={id} className="mb-3">
      <h3 id={id} className="font-semibold">
        {title}
      </h3>
      <ul>
        {runs.map((run) => (
          <li key={run.id} className="border-b border-line last:border-b-0">
            <button type="button" data-testid="pick-run" data-run-id={run.id} onClick={() => onPick(run.id)} className="flex min-h-8 w-full flex-wrap items-center gap-x-2 px-1 py-0.5 text-left hover:bg-raised">
              <StateBadge look={runLook(run.status)} extra={duration(run.elapsed_ms)} />
              <time dateTime={run.created_at} className="text-ink-2 tabular-nums">
                {moment(Date.parse(run.created_at))}
              </time>
              {run.origin ? <CopyMark kind={String(run.origin.kind)} /> : null}
              <bdi className="min-w-0 flex-1 basis-40 truncate">{visibleName(run.query ?? "", 200) || visibleName(run.agent_title ?? "", 80)}</bdi>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Failed({ error }: { error: Error }): ReactNode {
  return (
    <p role="alert" className="text-red">
      {visibleText(error.message)}
    </p>
  );
}
