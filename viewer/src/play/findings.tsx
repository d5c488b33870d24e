/** What validation says against a version, or why a request was refused. */
import type { ReactNode } from "react";

import type { ApiError } from "../api/request";
import { isObject } from "../run-file/rows";
import { texts } from "../texts";
import { visibleName } from "../ui/visible-text";
import { isUncertain } from "./use-send";

const t = texts.play;
const MOST = 50;

export interface Finding {
  node: string;
  field: string;
  message: string;
  code: string;
}

/** Return the errors among findings; what is no finding is left out. */
export function errorsOf(findings: unknown): Finding[] {
  const listed: readonly unknown[] = Array.isArray(findings) ? findings : [];
  const text = (value: unknown): string => (typeof value === "string" ? value : "");
  return listed.flatMap((each) =>
    isObject(each) && each.severity === "error" ? [{ node: text(each.node), field: text(each.field), message: text(each.message), code: text(each.code) }] : [],
  );
}

export function FindingList({ title, findings }: { title: string; findings: readonly Finding[] }): ReactNode {
  return (
    <section aria-label={title} data-tone="red" data-border="solid" className="rounded bg-tone-soft p-2 text-tone">
      <p className="font-medium">{title}</p>
      <ul className="list-disc pl-5">
        {findings.slice(0, MOST).map((finding, place) => (
          <li key={place} data-testid="finding" data-node-id={finding.node} data-field={finding.field} data-code={finding.code} className="break-words">
            {visibleName(finding.message, 600)}
            {finding.node || finding.field ? (
              <span className="font-mono text-xs"> ({visibleName(t.finding(finding.node, finding.field), 160)})</span>
            ) : null}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Why a start or a rerun has failed. */
export function FailureNotice({ failure }: { failure: ApiError }): ReactNode {
  const findings = errorsOf(isObject(failure.details) ? failure.details.findings : null);
  if (findings.length) return <FindingList title={t.cannotRunVersion} findings={findings} />;
  return (
    <p role="alert" data-tone={isUncertain(failure) ? "amber" : "red"} data-border="solid" className="rounded bg-tone-soft p-2 break-words text-tone">
      {visibleName(failure.message, 600)} {isUncertain(failure) ? t.retrySend : null}
    </p>
  );
}
