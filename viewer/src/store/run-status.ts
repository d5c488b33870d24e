/** Statuses of a run: each has an icon, a tone (a family of colours) and a border, besides its word. */

export type Tone = "neutral" | "accent" | "amber" | "violet" | "green" | "red" | "muted";
export type Border = "none" | "thin" | "solid" | "dashed" | "dotted" | "double" | "thick" | "bare";

export interface Look {
  word: string;
  icon: string;
  tone: Tone;
  border: Border;
}

const LOOKS: Readonly<Record<string, Look>> = {
  queued: { word: "queued", icon: "⋯", tone: "neutral", border: "dotted" },
  running: { word: "running", icon: "▸", tone: "accent", border: "solid" },
  waiting: { word: "waiting", icon: "?", tone: "violet", border: "dashed" },
  stopping: { word: "stopping", icon: "◷", tone: "amber", border: "dashed" },
  succeeded: { word: "succeeded", icon: "✓", tone: "green", border: "thin" },
  failed: { word: "failed", icon: "✗", tone: "red", border: "thick" },
  cancelled: { word: "cancelled", icon: "⊘", tone: "muted", border: "solid" },
  refused: { word: "refused", icon: "⊗", tone: "red", border: "double" },
};

/** Return the look of a status; one of a newer release is shown by its word. */
export function runLook(status: string): Look {
  return LOOKS[status] ?? { word: status, icon: "•", tone: "neutral", border: "solid" };
}

export const RUN_LOOKS = LOOKS;

export function isOver(status: string): boolean {
  return ["succeeded", "failed", "cancelled", "refused"].includes(status);
}
