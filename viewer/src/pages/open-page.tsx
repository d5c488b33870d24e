/** `/open`: an exported run out of a file, by a file picker or drag and drop, without any data of a server. */
import { getRouteApi } from "@tanstack/react-router";
import { useCallback, useEffect, useRef, useState, type DragEvent, type ReactNode } from "react";

import type { RunContents } from "../run/contents";
import { RunView } from "../run/run-view";
import { RunFileError } from "../run-file/file-errors";
import { readRunFile } from "../run-file/read-run-file";
import { RunStore } from "../store/run-store";
import { texts } from "../texts";
import { useAnnounce } from "../ui/announcer";
import { Commands } from "../ui/commands";
import { HasServerFiles } from "../ui/has-server-files";
import { Button } from "../ui/parts";
import { TopBar } from "../ui/shell";
import { visibleName } from "../ui/visible-text";
import type { RunSearch } from "../run/run-search";

const t = texts.open;
const route = getRouteApi("/open");

interface OpenRun {
  name: string;
  store: RunStore;
  contents: RunContents;
}

type Reading = { at: "nothing" } | { at: "reading"; percent: number } | { at: "failed"; name: string; error: RunFileError };

export function OpenPage(): ReactNode {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const announce = useAnnounce();
  const [run, setRun] = useState<OpenRun | null>(null);
  const [reading, setReading] = useState<Reading>({ at: "nothing" });
  const [isDragging, setDragging] = useState(false);
  const aborter = useRef<AbortController | null>(null);

  const openFile = useCallback(
    async (file: File): Promise<void> => {
      aborter.current?.abort();
      const own = new AbortController();
      aborter.current = own;
      setReading({ at: "reading", percent: 0 });
      const store = new RunStore();
      try {
        const contents = await readRunFile(file, store, {
          signal: own.signal,
          onProgress: ({ readBytes, totalBytes }) =>
            setReading({ at: "reading", percent: Math.floor((100 * readBytes) / totalBytes) }),
        });
        setRun({ name: file.name, store, contents });
        setReading({ at: "nothing" });
        announce(t.opened(visibleName(file.name, 80)));
      } catch (error) {
        if (own.signal.aborted) return;
        const shown = error instanceof RunFileError ? error : new RunFileError(String(error), "");
        setReading({ at: "failed", name: file.name, error: shown });
      }
    },
    [announce],
  );

  useEffect(() => () => aborter.current?.abort(), []);

  const cancel = (): void => {
    aborter.current?.abort();
    setReading({ at: "nothing" });
  };
  const onDrop = (event: DragEvent): void => {
    event.preventDefault();
    setDragging(false);
    const { files } = event.dataTransfer;
    const [file] = files;
    if (files.length > 1) {
      setReading({ at: "failed", name: `${files.length}`, error: new RunFileError(t.several, "") });
    } else if (file) void openFile(file);
  };
  const onSearch = useCallback(
    (change: Partial<RunSearch>, replace = false): void => {
      void navigate({ search: (now) => ({ ...now, ...change }), replace });
    },
    [navigate],
  );

  const isReady = reading.at !== "reading";
  return (
    <main
      data-testid="page"
      data-page="open"
      data-ready={isReady ? "1" : "0"}
      data-live="off"
      className="relative flex min-h-0 flex-1 flex-col"
      onDragOver={(event) => {
        event.preventDefault();
        setDragging(true);
      }}
      onDragLeave={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setDragging(false);
      }}
      onDrop={onDrop}
    >
      {run && reading.at === "nothing" ? (
        <>
          <TopBar
            crumbs={<bdi>{visibleName(run.name)}</bdi>}
            actions={<FilePicker label={t.another} isPrimary={false} onFile={(file) => void openFile(file)} />}
          />
          <HasServerFiles value={false}>
            <RunView store={run.store} contents={run.contents} search={search} onSearch={onSearch} />
          </HasServerFiles>
        </>
      ) : (
        <Opener reading={reading} hasStep={search.step !== undefined} onFile={(file) => void openFile(file)} onCancel={cancel} />
      )}
      {isDragging ? (
        <div className="pointer-events-none absolute inset-0 z-40 flex items-center justify-center border-4 border-dashed border-accent bg-accent-soft/90 text-lg font-semibold">
          {t.dropNow}
        </div>
      ) : null}
    </main>
  );
}

interface OpenerProps {
  reading: Reading;
  hasStep: boolean;
  onFile: (file: File) => void;
  onCancel: () => void;
}

function Opener({ reading, hasStep, onFile, onCancel }: OpenerProps): ReactNode {
  return (
    <div className="flex-1 overflow-auto">
      <title>{`${t.title} · Easel`}</title>
      <div className="mx-auto max-w-2xl p-6 sm:pt-14">
        <h1 className="mb-2 text-2xl font-semibold">{t.title}</h1>
        <p className="mb-5 text-sm text-ink-2">{t.intro}</p>
        {reading.at === "failed" ? (
          <div role="alert" data-tone="red" data-border="thick" className="mb-4 rounded bg-tone-soft p-3 text-sm">
            <p className="font-semibold text-tone">
              {t.failed}: <bdi>{visibleName(reading.name)}</bdi>
            </p>
            <p>{visibleName(reading.error.problem, 500)}</p>
            <p>{reading.error.remedy}</p>
          </div>
        ) : null}
        <div className="rounded-lg border-2 border-dashed border-line-strong bg-panel p-8 text-center">
          {reading.at === "reading" ? (
            <div>
              <label className="block">
                {t.reading(reading.percent)}
                <progress className="mx-auto my-2 block w-64 max-w-full" max={100} value={reading.percent} />
              </label>
              <Button onClick={onCancel}>{t.cancel}</Button>
            </div>
          ) : (
            <>
              <FilePicker label={t.choose} isPrimary onFile={onFile} />
              <p className="mt-2 text-ink-2">{t.drop}</p>
              <p className="mt-3 text-xs text-ink-2">{t.limit}</p>
              {hasStep ? <p className="mt-3">{t.again}</p> : null}
            </>
          )}
        </div>
        <h2 className="mt-8 mb-2 font-semibold">{t.commandsTitle}</h2>
        <Commands commands={t.commands} />
      </div>
    </div>
  );
}

function FilePicker({ label, isPrimary, onFile }: { label: string; isPrimary: boolean; onFile: (file: File) => void }): ReactNode {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <Button
        onClick={() => input.current?.click()}
        className={isPrimary ? "border-accent! bg-accent! px-4! py-2! text-sm font-medium text-surface! hover:opacity-90" : ""}
      >
        {label}
      </Button>
      <input
        ref={input}
        type="file"
        accept=".json,application/json"
        aria-label={label}
        tabIndex={-1}
        className="sr-only"
        onChange={(event) => {
          const file = event.target.files?.[0];
          event.target.value = "";
          if (file) onFile(file);
        }}
      />
    </>
  );
}
