/** What holds the state of a run for a page: frames come in, readers are notified once for all that came together. */
import { applyFrames, emptyRun, type Frame, type RunState } from "./run";

export class RunStore {
  private state = emptyRun();
  private readonly listeners = new Set<() => void>();

  readonly getState = (): RunState => this.state;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  apply(frames: readonly Frame[]): void {
    this.state = applyFrames(this.state, frames);
    for (const listener of this.listeners) listener();
  }
}
