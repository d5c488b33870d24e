/** The path of a line in a chart. */

/** Return the path through the points of neighbours that have one. */
export function pathOf<T>(parts: readonly T[], pointOf: (part: T) => readonly [number, number] | null): string {
  let isDrawing = false;
  return parts
    .map((part) => {
      const point = pointOf(part);
      const step = point ? `${isDrawing ? "L" : "M"}${point[0].toFixed(1)},${point[1].toFixed(1)}` : "";
      isDrawing = point !== null;
      return step;
    })
    .join("");
}
