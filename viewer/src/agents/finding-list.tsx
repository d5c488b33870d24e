/** What validation finds in a draft; a click leads to the node. */
import type { ReactNode } from "react";

import type { FindingRow } from "../api/replies";
import type { Look } from "../store/run-status";
import { texts } from "../texts";
import { StateBadge } from "../ui/parts";
import { visibleName } from "../ui/visible-text";

const t = texts.agent;
const LOOKS: Readonly<Record<string, Look>> = {
  error: { word: t.severities.error ?? "", icon: "✗", tone: "red", border: "solid" },
  warning: { word: t.severities.warning ?? "", icon: "!", tone: "amber", border: "solid" },
};
const FIRST_FINDINGS = 50;

export function FindingList({ findings, onNode }: { findings: readonly FindingRow[]; onNode?: (nodeId: string) => void }): ReactNode {
  if (!findings.length) return <p className="text-ink-2">{t.noFindings}</p>;
  return (
    <ul className="flex flex-col gap-1">
      {findings.slice(0, FIRST_FINDINGS).map((finding, place) => (
        <li key={place} data-testid="finding" data-node-id={finding.node ?? ""} data-field={finding.field ?? ""} data-code={finding.code}>
          <StateBadge look={LOOKS[finding.severity] ?? { word: finding.severity, icon: "•", tone: "neutral", border: "solid" }} />{" "}
          {finding.node !== null && onNode ? (
            <button type="button" className="min-h-6 text-left text-accent underline" onClick={() => onNode(finding.node ?? "")}>
              {visibleName(finding.message, 500)}
            </button>
          ) : (
            <span>{visibleName(finding.message, 500)}</span>
          )}
        </li>
      ))}
      {findings.length > FIRST_FINDINGS ? <li className="text-ink-2">+{findings.length - FIRST_FINDINGS}</li> : null}
    </ul>
  );
}

export function errorsOf(findings: readonly FindingRow[]): FindingRow[] {
  return findings.filter((finding) => finding.severity === "error");
}
