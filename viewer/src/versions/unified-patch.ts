/** The difference of two texts as a unified patch, which `patch` and `git apply` understand. */

const CONTEXT = 3;
const MAX_COST = 1000; // edits; beyond it the lines between the equal ends are replaced as a whole

/** A run of lines of A that are replaced by lines of B: [from, to) of both. */
export interface LineChange {
  fromA: number;
  toA: number;
  fromB: number;
  toB: number;
}

/** Return the patch that makes B out of A; "" for equal texts. Both end with a line feed. */
export function unifiedPatch(textA: string, textB: string, nameA: string, nameB: string): string {
  const a = linesOf(textA);
  const b = linesOf(textB);
  const hunks = hunksOf(lineChanges(a, b), a.length);
  if (!hunks.length) return "";
  return `--- ${nameA}\n+++ ${nameB}\n${hunks.map((hunk) => hunkText(hunk, a, b)).join("")}`;
}

/** Return where two lists of lines differ, in order, by the algorithm of Myers. */
export function lineChanges(a: readonly string[], b: readonly string[]): LineChange[] {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const [n, m] = [a.length - start - end, b.length - start - end];
  if (!n && !m) return [];
  const steps = n && m ? shortestEdit(a, b, start, n, m) : null;
  if (!steps) return [{ fromA: start, toA: start + n, fromB: start, toB: start + m }];
  const changes: LineChange[] = [];
  for (const [x, y, isDeletion] of steps) {
    const [atA, atB] = [start + x, start + y];
    const last = changes.at(-1);
    if (last && last.toA === atA && last.toB === atB) {
      if (isDeletion) last.toA++;
      else last.toB++;
    } else changes.push({ fromA: atA, toA: atA + (isDeletion ? 1 : 0), fromB: atB, toB: atB + (isDeletion ? 0 : 1) });
  }
  return changes;
}

/** Return the deletions and insertions in order, each [x, y, is it a deletion]; null if there are too many. */
function shortestEdit(a: readonly string[], b: readonly string[], start: number, n: number, m: number): [number, number, boolean][] | null {
  const most = Math.min(n + m, MAX_COST);
  const furthest = new Map<number, number>([[1, 0]]);
  const at = (k: number): number => furthest.get(k) ?? -1;
  const trace: Map<number, number>[] = [];
  for (let cost = 0; cost <= most; cost++) {
    const before = new Map<number, number>();
    for (let k = -cost - 1; k <= cost + 1; k++) {
      const value = furthest.get(k);
      if (value !== undefined) before.set(k, value);
    }
    trace.push(before);
    for (let k = -cost; k <= cost; k += 2) {
      let x = k === -cost || (k !== cost && at(k - 1) < at(k + 1)) ? at(k + 1) : at(k - 1) + 1;
      while (x < n && x - k < m && a[start + x] === b[start + x - k]) x++;
      furthest.set(k, x);
      if (x >= n && x - k >= m) return backtrack(trace, n, m);
    }
  }
  return null;
}

function backtrack(trace: readonly ReadonlyMap<number, number>[], n: number, m: number): [number, number, boolean][] {
  const steps: [number, number, boolean][] = [];
  let [x, y] = [n, m];
  for (let cost = trace.length - 1; cost > 0; cost--) {
    const before = trace[cost] ?? new Map<number, number>();
    const at = (k: number): number => before.get(k) ?? -1;
    const k = x - y;
    const isInsertion = k === -cost || (k !== cost && at(k - 1) < at(k + 1));
    const previous = isInsertion ? k + 1 : k - 1;
    const fromX = at(previous);
    const fromY = fromX - previous;
    steps.push([fromX, fromY, !isInsertion]);
    [x, y] = [fromX, fromY];
  }
  return steps.reverse();
}

/** Join changes whose contexts would touch. */
function hunksOf(changes: readonly LineChange[], linesOfA: number): LineChange[][] {
  const hunks: LineChange[][] = [];
  for (const change of changes) {
    const last = hunks.at(-1)?.at(-1);
    if (last && change.fromA - last.toA <= 2 * CONTEXT && linesOfA) hunks.at(-1)?.push(change);
    else hunks.push([change]);
  }
  return hunks;
}

function hunkText(hunk: readonly LineChange[], a: readonly string[], b: readonly string[]): string {
  const [first, last] = [hunk[0], hunk.at(-1)];
  if (!first || !last) return "";
  const before = Math.min(CONTEXT, first.fromA);
  const after = Math.min(CONTEXT, a.length - last.toA);
  const [startA, endA] = [first.fromA - before, last.toA + after];
  const [startB, endB] = [first.fromB - before, last.toB + after];
  let lines = `@@ -${range(startA, endA)} +${range(startB, endB)} @@\n`;
  let at = startA;
  const write = (sign: string, from: readonly string[], begin: number, end: number): void => {
    for (let place = begin; place < end; place++) lines += `${sign}${from[place] ?? ""}\n`;
  };
  for (const change of hunk) {
    write(" ", a, at, change.fromA);
    write("-", a, change.fromA, change.toA);
    write("+", b, change.fromB, change.toB);
    at = change.toA;
  }
  write(" ", a, at, endA);
  return lines;
}

function range(start: number, end: number): string {
  const count = end - start;
  return count === 1 ? `${start + 1}` : `${count ? start + 1 : start},${count}`;
}

function linesOf(text: string): string[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}
