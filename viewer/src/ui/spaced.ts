/** Texts that are said with a pause between them; of one that changes meanwhile only its last state. */
export class Spaced {
  private readonly waiting = new Map<string, string>();
  private timer: ReturnType<typeof setTimeout> | null = null;
  private lastAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly gapMs: number,
    private readonly say: (text: string) => void,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Say a text, or keep it until it may be said; `about` is what it tells of. */
  offer(about: string, text: string): void {
    this.waiting.set(about, text);
    this.timer ??= setTimeout(() => this.flush(), Math.max(0, this.lastAt + this.gapMs - this.now()));
  }

  /** Forget what waits. */
  stop(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    this.waiting.clear();
  }

  private flush(): void {
    this.timer = null;
    this.lastAt = this.now();
    const text = [...this.waiting.values()].join(" ");
    this.waiting.clear();
    this.say(text);
  }
}
