/** The steps (activations) of a run, as columns: 10,000 of them need a few megabytes. */
import { NumberColumn, StringTable, TextColumn } from "./columns";

/** A step as it is shown and stored; times are milliseconds since 1970. */
export interface Step {
  id: string;
  nodeId: string;
  component: string;
  scope: string;
  ordinal: number;
  orderKey: string;
  status: string;
  outcome: string | null;
  attempt: number;
  crashCount: number;
  createdAt: number | null;
  notBefore: number | null;
  startedAt: number | null;
  finishedAt: number | null;
  endedAt: number | null;
  worker: string | null;
  effect: string | null;
  tokensIn: number | null;
  tokensOut: number | null;
  cost: string | null;
  error: string | null;
  code: string | null;
  routedTo: readonly string[] | null;
  count: number | null;
  stream: string | null;
}

const NUMBERS = [
  "ordinal", "attempt", "crashCount", "createdAt", "notBefore", "startedAt", "finishedAt", "endedAt", "tokensIn",
  "tokensOut", "count",
] as const;
const TEXTS = ["nodeId", "component", "scope", "status", "outcome", "worker", "effect", "cost", "code"] as const;

type NumberName = (typeof NUMBERS)[number];
type TextName = (typeof TEXTS)[number];

/** Rows are replaced in place; whoever changes a table must publish a new state of the run (`applyFrame`). */
export class StepTable {
  private readonly strings = new StringTable();
  private readonly ids: string[] = [];
  private readonly orderKeys: string[] = [];
  private readonly rows = new Map<string, number>();
  private readonly errors = new Map<number, string>();
  private readonly routes = new Map<number, readonly string[]>();
  private readonly streams = new Map<number, string>();
  private readonly numbers: Record<NumberName, NumberColumn>;
  private readonly texts: Record<TextName, TextColumn>;

  constructor() {
    this.numbers = Object.fromEntries(NUMBERS.map((name) => [name, new NumberColumn()])) as typeof this.numbers;
    this.texts = Object.fromEntries(TEXTS.map((name) => [name, new TextColumn(this.strings)])) as typeof this.texts;
  }

  get count(): number {
    return this.ids.length;
  }

  /** Add a step, or replace the one with its id. */
  upsert(step: Step): void {
    let row = this.rows.get(step.id);
    if (row === undefined) {
      row = this.ids.push(step.id) - 1;
      this.rows.set(step.id, row);
    }
    this.orderKeys[row] = step.orderKey;
    for (const name of NUMBERS) this.numbers[name].set(row, step[name]);
    for (const name of TEXTS) this.texts[name].set(row, step[name]);
    setOrDelete(this.errors, row, step.error);
    setOrDelete(this.routes, row, step.routedTo);
    setOrDelete(this.streams, row, step.stream);
  }

  rowOf(id: string): number | null {
    return this.rows.get(id) ?? null;
  }

  id(row: number): string {
    return this.ids[row] ?? "";
  }

  orderKey(row: number): string {
    return this.orderKeys[row] ?? "";
  }

  number(row: number, name: NumberName): number | null {
    return this.numbers[name].get(row);
  }

  text(row: number, name: TextName): string | null {
    return this.texts[name].get(row);
  }

  error(row: number): string | null {
    return this.errors.get(row) ?? null;
  }

  routedTo(row: number): readonly string[] | null {
    return this.routes.get(row) ?? null;
  }

  /** Return a row as an object. */
  step(row: number): Step {
    const numbers = Object.fromEntries(NUMBERS.map((name) => [name, this.number(row, name)]));
    const texts = Object.fromEntries(TEXTS.map((name) => [name, this.text(row, name)]));
    return {
      ...(numbers as Record<NumberName, number>),
      ...(texts as Record<TextName, string>),
      id: this.id(row),
      orderKey: this.orderKey(row),
      error: this.error(row),
      routedTo: this.routedTo(row),
      stream: this.streams.get(row) ?? null,
    };
  }

  find(id: string | undefined): Step | null {
    const row = id === undefined ? null : this.rowOf(id);
    return row === null ? null : this.step(row);
  }

  /** Return the rows in canonical order. */
  inOrder(): number[] {
    const rows = this.ids.map((_, row) => row);
    return rows.sort((a, b) => compareTexts(this.orderKey(a), this.orderKey(b)) || compareTexts(this.id(a), this.id(b)));
  }
}

function setOrDelete<T>(map: Map<number, T>, row: number, value: T | null): void {
  if (value === null) map.delete(row);
  else map.set(row, value);
}

/** Compare texts by their UTF-16 units, as keys of order are meant to be; `localeCompare` is slow and another order. */
function compareTexts(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
