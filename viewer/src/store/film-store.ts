/** What gives views a run as it was at the time of the film, or as it is while there is no such time. */
import { Film, runAt } from "./film";
import type { RunState } from "./run";
import type { RunStore } from "./run-store";

/** What views read the state of a run from. */
export type ReadableStore = Pick<RunStore, "getState" | "subscribe">;

export class FilmStore implements ReadableStore {
  private time: number | null = null;
  private film: { of: RunState; film: Film } | null = null;
  private shown: { of: RunState; time: number; state: RunState } | null = null;
  private readonly listeners = new Set<() => void>();

  constructor(private readonly source: ReadableStore) {}

  /** Show the run at a time, in milliseconds since its start; null shows it as it is. */
  setTime(time: number | null): void {
    if (time === this.time) return;
    this.time = time;
    for (const listener of this.listeners) listener();
  }

  readonly getTime = (): number | null => this.time;

  /** Return the film of the run as it is known now. */
  readonly getFilm = (): Film => {
    const state = this.source.getState();
    if (this.film?.of !== state) this.film = { of: state, film: new Film(state) };
    return this.film.film;
  };

  readonly getState = (): RunState => {
    const state = this.source.getState();
    if (this.time === null) return state;
    if (this.shown?.of !== state || this.shown.time !== this.time) {
      const film = this.getFilm();
      this.shown = { of: state, time: this.time, state: runAt(state, film, film.start + this.time) };
    }
    return this.shown.state;
  };

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    const stop = this.source.subscribe(listener);
    return () => {
      this.listeners.delete(listener);
      stop();
    };
  };
}
