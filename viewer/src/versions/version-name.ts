/** A version, or the draft, by its name. */
import { DRAFT } from "../api/agents";
import { texts } from "../texts";
import { visibleName } from "../ui/visible-text";

export function versionName(version: { id: string; number?: number | null; title: string }): string {
  if (version.id === DRAFT) return texts.versions.draft;
  const title = visibleName(version.title, 80);
  return [version.number, title].filter(Boolean).join(" · ");
}
