/** Overlays of the drawing: the figure of each node, the choice among them, and the legend. */
import { createContext, use, useMemo, type ReactNode } from "react";

import { OVERLAYS, type Overlay } from "../run/run-search";
import { useRunContext, useRunState } from "../run/use-run";
import { figuresOf, heatOf, type Figures, type Measure } from "../store/overlays";
import { texts } from "../texts";
import { count, duration } from "../ui/format";
import { useShortcut } from "../ui/shortcuts";

const t = texts.overlays;

interface Shown {
  measure: Measure;
  figures: Figures;
}

const OverlayContext = createContext<Shown | null>(null);

/** What a node shows in an overlay. */
export interface Figure {
  value: number;
  text: string;
  heat: number;
}

export function useFigure(nodeId: string): Figure | null {
  const shown = use(OverlayContext);
  return shown && figureOf(shown, nodeId);
}

/** Return what gives the figure of any node; null while the overlay is the state. */
export function useFigures(): ((nodeId: string) => Figure) | null {
  const shown = use(OverlayContext);
  return useMemo(() => shown && ((nodeId: string) => figureOf(shown, nodeId)), [shown]);
}

function figureOf(shown: Shown, nodeId: string): Figure {
  const value = shown.figures.of.get(nodeId) ?? 0;
  return { value, text: textOf(shown, value), heat: heatOf(value, shown.figures.most) };
}

function textOf({ measure, figures }: Shown, value: number): string {
  if (measure === "time" || measure === "wait") return duration(value);
  if (measure === "cost") return `${Number(value.toPrecision(6))} ${figures.currency}`.trim();
  return measure === "tokens" ? `${count(value)} tokens` : texts.run.steps(value);
}

export function OverlayProvider({ children }: { children: ReactNode }): ReactNode {
  const { search } = useRunContext();
  const overlay = search.overlay ?? "state";
  return overlay === "state" ? children : <Figured measure={overlay}>{children}</Figured>;
}

function Figured({ measure, children }: { measure: Measure; children: ReactNode }): ReactNode {
  const state = useRunState();
  const shown = useMemo(() => ({ measure, figures: figuresOf(state, measure) }), [state, measure]);
  return (
    <OverlayContext value={shown}>
      {children}
      <div role="note" aria-label={t.legend} data-testid="overlay-legend" className="absolute bottom-1 left-2 z-10 flex items-center gap-1 rounded border border-line bg-surface px-2 py-0.5">
        {shown.figures.most > 0 ? (
          <>
            <span>{t.names[measure]}:</span>
            <span className="text-ink-2">{t.least}</span>
            {[0, 1, 2, 3, 4].map((heat) => (
              <span key={heat} aria-hidden="true" data-heat={heat} className="inline-block h-4 w-6 border border-line-strong" />
            ))}
            <span className="text-ink-2">{t.most}</span>
            <span className="tabular-nums">{textOf(shown, shown.figures.most)}</span>
          </>
        ) : (
          <span>{t.none}</span>
        )}
      </div>
    </OverlayContext>
  );
}

export function OverlayChoice(): ReactNode {
  const { search, onSearch } = useRunContext();
  const overlay = search.overlay ?? "state";
  const show = (next: Overlay): void => onSearch({ overlay: next === "state" ? undefined : next });
  useShortcut("o", t.key, () => show(OVERLAYS[(OVERLAYS.indexOf(overlay) + 1) % OVERLAYS.length] ?? "state"));
  return (
    <span className="flex items-center gap-1 rounded bg-surface/90 px-1 text-ink-2">
      <span aria-hidden="true">{t.label}</span>
      <select
        aria-label={t.label}
        value={overlay}
        onChange={(event) => show(OVERLAYS.find((each) => each === event.target.value) ?? "state")}
        className="min-h-6 rounded border border-line-strong bg-surface text-ink"
      >
        {OVERLAYS.map((each) => (
          <option key={each} value={each}>
            {t.names[each]}
          </option>
        ))}
      </select>
    </span>
  );
}
