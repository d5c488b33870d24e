/** Undo and redo over documents. A document shares with the next one what has not changed, so many of them are small. */
import type { Document } from "./document";

const MOST = 500;

interface Step {
  before: Document;
  after: Document;
  /** What was done, for people. */
  name: string;
  /** Changes in a row with the same key are one step: typing in a field, moving with arrow keys. */
  key: string | null;
}

export class History {
  private done: Step[] = [];
  private undone: Step[] = [];

  add(name: string, before: Document, after: Document, key: string | null = null): void {
    this.undone = [];
    const last = this.done.at(-1);
    if (key !== null && last?.key === key) {
      this.done[this.done.length - 1] = { ...last, after };
      return;
    }
    this.done.push({ before, after, name, key });
    if (this.done.length > MOST) this.done.shift();
  }

  /** End the step, so that the next change is one of its own. */
  close(): void {
    const last = this.done.at(-1);
    if (last) this.done[this.done.length - 1] = { ...last, key: null };
  }

  /** What undo and redo would do; null if there is nothing. */
  get names(): { undo: string | null; redo: string | null } {
    return { undo: this.done.at(-1)?.name ?? null, redo: this.undone.at(-1)?.name ?? null };
  }

  undo(): Document | null {
    const step = this.done.pop();
    if (!step) return null;
    this.undone.push({ ...step, key: null });
    this.close();
    return step.before;
  }

  redo(): Document | null {
    const step = this.undone.pop();
    if (!step) return null;
    this.done.push(step);
    return step.after;
  }
}
