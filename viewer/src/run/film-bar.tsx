/** The film bar: a slider over the time of the run, with marks, and a player. The drawing and Time follow it. */
import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore, type ReactNode } from "react";

import { isOver } from "../store/run-status";
import type { Film, MarkKind } from "../store/film";
import { texts } from "../texts";
import { count, duration } from "../ui/format";
import { Button } from "../ui/parts";
import { useShortcut } from "../ui/shortcuts";
import { useRun, useRunContext } from "./use-run";

const t = texts.film;
const SPEEDS = [1, 4, 16] as const;
const FRAME_MS = 50;
const WRITE_MS = 1000; // how often a film that plays writes its time into the address
const REBUILD_S = 5; // how often the film of a live run is made again while nobody looks at it
const TONES: Readonly<Record<MarkKind, string>> = { wait: "neutral", form: "violet", failure: "red" };

/** Return the time of the film in milliseconds since the start of the run; null while there is none. */
export function useFilmTime(): number | null {
  const { film } = useRunContext();
  return useSyncExternalStore(film.subscribe, film.getTime);
}

export function FilmBar(): ReactNode {
  const hasSteps = useRun((state) => state.steps.count > 0);
  const isPartial = useRun((state) => state.rows.isPartial);
  return (
    <section aria-label={t.title} className="flex min-h-9 shrink-0 flex-wrap items-center gap-x-2 gap-y-1 border-t border-line bg-panel px-2 py-1">
      {isPartial ? <LoadRows /> : hasSteps ? <Player /> : null}
    </section>
  );
}

/** What stands in place of a film whose rows are not here. */
function LoadRows(): ReactNode {
  const { actions } = useRunContext();
  const loaded = useRun((state) => state.steps.count);
  const total = useRun((state) => state.rows.total);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const load = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      await actions?.loadAllRows?.();
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <p className="min-w-0 flex-1">{isBusy ? t.loading(count(loaded), count(total)) : t.tooMany(count(total), Math.ceil((total * BYTES_PER_ROW) / 1e6))}</p>
      {error === null ? null : (
        <p role="alert" className="text-red">
          {error}
        </p>
      )}
      {actions?.loadAllRows ? (
        <Button disabled={isBusy} onClick={() => void load()}>
          {t.load}
        </Button>
      ) : null}
    </>
  );
}

const BYTES_PER_ROW = 130; // of JSON, as the API sends it

function Player(): ReactNode {
  const { film, search, onSearch } = useRunContext();
  const [isPlaying, setPlaying] = useState(false);
  const [speed, setSpeed] = useState<(typeof SPEEDS)[number]>(1);
  const [skipsIdle, setSkipsIdle] = useState(true);
  const time = useFilmTime();
  const isLive = useRun((state) => !isOver(state.header?.status ?? ""));
  const version = useRun((state) => (isLive && !isPlaying && time === null ? 0 : state.version)); // a live run is filmed when someone looks
  const second = useRun((state) => (isLive ? Math.floor(state.now / 1000) : 0));
  const shown = useMemo(() => film.getFilm(), [film, version, Math.floor(second / REBUILD_S)]); // eslint-disable-line react-hooks/exhaustive-deps
  const length = Math.max(shown.length, isLive ? 1000 * second - shown.start : 0);

  const written = search.t === undefined ? null : Math.max(0, Number(search.t));
  const own = useRef<number | null>(null); // what this bar has written itself
  useEffect(() => {
    if (own.current !== null && written === own.current) return;
    own.current = null;
    film.setTime(written);
  }, [film, written]);
  useEffect(() => () => film.setTime(null), [film]);

  const write = useCallback(
    (at: number | null): void => {
      own.current = at === null ? null : Math.round(at);
      onSearch({ t: at === null ? undefined : String(Math.round(at)) }, true);
    },
    [onSearch],
  );
  const goTo = (at: number | null): void => {
    const to = at === null ? null : Math.round(Math.max(0, Math.min(length, at)));
    film.setTime(to);
    write(to);
  };
  const step = (direction: 1 | -1): void => {
    setPlaying(false);
    const from = film.getTime() ?? length;
    goTo(film.getFilm().neighbour(shown.start + from, direction) - shown.start);
  };
  useShortcut("[", t.back, () => step(-1));
  useShortcut("]", t.forward, () => step(1));
  usePlayback(isPlaying, shown, speed, skipsIdle, write, () => setPlaying(false));

  const play = (): void => {
    if (!isPlaying && (time === null || time >= shown.length)) film.setTime(0);
    if (isPlaying) write(film.getTime());
    setPlaying(!isPlaying);
  };
  const at = Math.min(time ?? length, length);
  return (
    <>
      <Button onClick={play} aria-label={isPlaying ? t.pause : t.play} className="min-w-8 justify-center">
        <span aria-hidden="true">{isPlaying ? "❚❚" : "▶"}</span>
      </Button>
      <span className="w-32 shrink-0 text-right whitespace-nowrap tabular-nums">{`${duration(at)} / ${duration(length)}`}</span>
      <div className="relative min-w-40 flex-1 basis-48">
        <Marks film={shown} />
        <input
          type="range"
          aria-label={t.slider}
          aria-valuetext={duration(at)}
          min={0}
          max={Math.ceil(length)}
          step={1}
          value={Math.round(at)}
          onChange={(event) => {
            setPlaying(false);
            goTo(Number(event.target.value));
          }}
          className="block h-6 w-full accent-(--accent)"
        />
      </div>
      <div role="group" aria-label={t.speed} className="flex">
        {SPEEDS.map((each) => (
          <Button key={each} aria-pressed={speed === each} onClick={() => setSpeed(each)} className="not-first:-ml-px">
            {each}×
          </Button>
        ))}
      </div>
      <label className="flex min-h-6 items-center gap-1">
        <input type="checkbox" checked={skipsIdle} onChange={(event) => setSkipsIdle(event.target.checked)} />
        {t.skipIdle}
      </label>
      <Button
        disabled={time === null}
        onClick={() => {
          setPlaying(false);
          goTo(null);
        }}
      >
        {isLive ? t.now : t.end}
      </Button>
    </>
  );
}

/** Where waits begin, forms are shown and steps fail. */
function Marks({ film }: { film: Film }): ReactNode {
  const marks = useMemo(() => film.marks(), [film]);
  return (
    <svg aria-hidden="true" className="pointer-events-none absolute inset-x-2 top-0 h-1.5 w-[calc(100%-1rem)] overflow-visible">
      {marks.map(({ at, kind }, index) => (
        <g key={index} data-tone={TONES[kind]}>
          <rect x={`${(100 * (at - film.start)) / film.length}%`} y={0} width={kind === "failure" ? 3 : 2} height={kind === "wait" ? 4 : 6} fill="var(--tone)" />
        </g>
      ))}
    </svg>
  );
}

/** Move the film on while it plays; at its end it stops and shows the run as it is. */
function usePlayback(isPlaying: boolean, film: Film, speed: number, skipsIdle: boolean, write: (at: number | null) => void, onEnd: () => void): void {
  const { film: store } = useRunContext();
  const idle = useMemo(() => (skipsIdle && isPlaying ? film.idle() : []), [film, skipsIdle, isPlaying]);
  const end = useRef(onEnd);
  useEffect(() => {
    end.current = onEnd;
  });
  useEffect(() => {
    if (!isPlaying) return;
    let before = performance.now();
    let written = before;
    const timer = setInterval(() => {
      const now = performance.now();
      let at = (store.getTime() ?? 0) + (now - before) * speed;
      before = now;
      const gap = idle.find(([from, to]) => film.start + at >= from && film.start + at < to);
      if (gap) at = gap[1] - film.start;
      if (at >= film.length) {
        store.setTime(null);
        write(null);
        end.current();
        return;
      }
      store.setTime(at);
      if (now - written < WRITE_MS) return;
      written = now;
      write(at);
    }, FRAME_MS);
    return () => clearInterval(timer);
  }, [isPlaying, film, speed, idle, store, write]);
}
