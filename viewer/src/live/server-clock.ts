/** The clock of the server, so that durations are right on a computer whose clock is wrong. */
const REMEMBERED = 10;

export class ServerClock {
  private readonly offsets: number[] = [];

  constructor(private readonly local: () => number = () => performance.now()) {}

  /** Note the server's time of a reply that has just arrived. */
  note(now: number): void {
    if (now <= 0) return;
    this.offsets.push(now - this.local());
    if (this.offsets.length > REMEMBERED) this.offsets.shift();
  }

  /** Return the server's time by the reply that was fastest; 0 before the first. */
  now(): number {
    return this.offsets.length ? Math.max(...this.offsets) + this.local() : 0;
  }
}
