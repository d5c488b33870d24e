/** When to try again, and when to give up streaming. */
const FIRST_MS = 500;
const MOST_MS = 15_000;
const WINDOW_MS = 60_000;
const MOST_FAILURES = 3;

export class Backoff {
  private tries = 0;
  private readonly failures: number[] = [];

  constructor(
    private readonly now: () => number = () => performance.now(),
    private readonly random: () => number = Math.random,
  ) {}

  /** Note a failure; return how many milliseconds to wait. */
  fail(retryAfter: number | null = null): number {
    this.failures.push(this.now());
    const own = Math.min(MOST_MS, FIRST_MS * 2 ** this.tries++) * (0.75 + this.random() / 2);
    return Math.max(own, (retryAfter ?? 0) * 1000);
  }

  succeed(): void {
    this.tries = 0;
  }

  /** Return whether there were three failures within a minute. */
  get isHopeless(): boolean {
    return this.failures.filter((at) => at > this.now() - WINDOW_MS).length >= MOST_FAILURES;
  }

  forget(): void {
    this.failures.length = 0;
    this.tries = 0;
  }
}
