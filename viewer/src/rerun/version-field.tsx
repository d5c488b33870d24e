/** The version that a copy runs. */
import { useQuery } from "@tanstack/react-query";
import { useId, type ReactNode } from "react";

import type { VersionRow } from "../api/copies";
import type { Run } from "../api/replies";
import { texts } from "../texts";
import { visibleName } from "../ui/visible-text";
import { CONTROL } from "./budget-fields";
import { runDocumentQuery, versionQuery } from "./copy-queries";

const t = texts.rerun;
export const NO_VERSIONS: readonly VersionRow[] = [];

/** Return the document of the version that a copy runs: undefined while it is loaded, null if it cannot be read. */
export function useVersionDocument(run: Run, version: string, versions: readonly VersionRow[]): unknown {
  const own = useQuery(runDocumentQuery(run.id));
  const listed = version === "published" ? versions.find((each) => each.published)?.id : version;
  const other = useQuery(versionQuery(run.agent_id ?? "", version === "same" ? null : (listed ?? null)));
  const read = version === "same" ? own : other;
  return read.data ? read.data.document : read.error ? null : undefined;
}

interface VersionFieldProps {
  run: Run;
  versions: readonly VersionRow[];
  isCut: boolean;
  value: string;
  onChange: (version: string) => void;
}

export function VersionField({ run, versions, isCut, value, onChange }: VersionFieldProps): ReactNode {
  const id = useId();
  const own = run.version_number ? t.versions.row(run.version_number, visibleName(run.version_title ?? "", 60)) : visibleName(run.version_title || "–", 60);
  return (
    <div>
      <label htmlFor={id} className="block font-medium">
        {t.version}
      </label>
      <select id={id} className={CONTROL} value={value} onChange={(event) => onChange(event.target.value)}>
        <option value="same">{t.versions.same(own)}</option>
        <option value="draft">{t.versions.draft}</option>
        <option value="published" disabled={!versions.some((each) => each.published)}>
          {t.versions.published}
        </option>
        {versions.length ? (
          <optgroup label={t.versions.listed}>
            {versions.map((each) => (
              <option key={each.id} value={each.id}>
                {t.versions.row(each.number, visibleName(each.title, 80))}
              </option>
            ))}
          </optgroup>
        ) : null}
      </select>
      {isCut ? <p className="text-ink-2">{t.versions.cut}</p> : null}
    </div>
  );
}
