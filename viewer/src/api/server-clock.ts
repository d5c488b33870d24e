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

/** The clock of the server by all replies of the API. */
const clock = new ServerClock();

/** Note the time that a reply has, in milliseconds since 1970: `now` of its body, or its header `Date`, which has seconds only. */
export function noteServerTime(time: unknown): void {
  const now = typeof time === "string" ? Date.parse(time) : time;
  if (typeof now === "number" && Number.isFinite(now)) clock.note(now);
}

/** Return the server's time; that of this computer before the first reply. */
export function serverNow(): number {
  return clock.now() || Date.now();
}
