/** Columns of rows: numbers in typed arrays that grow, and texts that are stored once. */

const FIRST_CAPACITY = 256;

/** A column of numbers; `null` is stored as NaN. */
export class NumberColumn {
  private values = new Float64Array(FIRST_CAPACITY);

  get(index: number): number | null {
    const value = this.values[index];
    return value === undefined || Number.isNaN(value) ? null : value;
  }

  set(index: number, value: number | null): void {
    if (index >= this.values.length) {
      const grown = new Float64Array(Math.max(2 * this.values.length, index + 1));
      grown.set(this.values);
      this.values = grown;
    }
    this.values[index] = value ?? Number.NaN;
  }
}

/** Texts in the order of their first use, each with its number. */
export class StringTable {
  private readonly numbers = new Map<string, number>();
  private readonly texts: string[] = [];

  number(text: string): number {
    const known = this.numbers.get(text);
    if (known !== undefined) return known;
    this.numbers.set(text, this.texts.length);
    return this.texts.push(text) - 1;
  }

  text(number: number): string {
    return this.texts[number] ?? "";
  }
}

/** A column of texts that repeat themselves, as numbers of a table. */
export class TextColumn {
  private readonly numbers = new NumberColumn();

  constructor(private readonly strings: StringTable) {}

  get(index: number): string | null {
    const number = this.numbers.get(index);
    return number === null ? null : this.strings.text(number);
  }

  set(index: number, text: string | null): void {
    this.numbers.set(index, text === null ? null : this.strings.number(text));
  }
}
