/** What is wrong with the draft: a row for each finding; a click focuses its field. */
import type { ReactNode } from "react";

import { texts } from "../texts";
import { visibleName } from "../ui/visible-text";
import { nodesOf } from "./document/document";
import { countErrors, useDocument, useDraft, useEditor } from "./editor-context";

const t = texts.editor.findings;
const MOST = 200;

export function FindingsList(): ReactNode {
  const findings = useDraft((state) => state.findings);
  const document = useDocument();
  const { focusField } = useEditor();
  const errors = countErrors(findings);
  if (!findings.length) return <p className="shrink-0 border-t border-line px-3 py-1 text-ink-2">{t.none}</p>;
  return (
    <details open className="max-h-48 shrink-0 overflow-auto border-t border-line">
      <summary className="min-h-6 cursor-pointer px-3 py-1">
        {t.title}: <span className={errors ? "font-medium text-red" : "font-medium"}>{t.count(errors, findings.length - errors)}</span>
      </summary>
      <ul aria-label={t.title} className="px-3 pb-2">
        {findings.slice(0, MOST).map((finding, index) => {
          const { nodeId, field } = finding;
          const name = nodesOf(document).get(nodeId ?? "")?.name;
          return (
            <li key={index} data-testid="finding" data-node-id={nodeId ?? ""} data-field={field ?? ""} data-code={finding.code} className="flex flex-wrap items-baseline gap-x-2 py-0.5">
              <span data-tone={finding.severity === "error" ? "red" : "amber"} className="w-16 shrink-0 font-medium text-tone">
                {t.severity[finding.severity] ?? visibleName(finding.severity, 20)}
              </span>
              {nodeId !== null && name !== undefined ? (
                <button type="button" onClick={() => focusField({ nodeId, field })} className="min-h-6 text-accent underline">
                  <bdi>{visibleName(name, 60)}</bdi>
                  {field === null ? "" : ` · ${visibleName(field, 60)}`}
                </button>
              ) : (
                <span className="text-ink-2">{nodeId === null ? t.document : visibleName(nodeId, 60)}</span>
              )}
              <span className="min-w-0">{visibleName(finding.message, 500)}</span>
            </li>
          );
        })}
      </ul>
    </details>
  );
}
