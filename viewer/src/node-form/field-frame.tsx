/** What surrounds the control of a field: its label, its help, and the findings. */
import type { ReactNode } from "react";

import { texts } from "../texts";
import { visibleName, visibleText } from "../ui/visible-text";
import { FindingTexts, type FieldState } from "./form-context";
import type { FieldSpec } from "./form-schema";

const t = texts.nodeForm;

export const CONTROL =
  "min-h-7 w-full min-w-0 rounded border border-line-strong bg-surface px-1.5 text-ink aria-invalid:border-red [&:is(input,textarea)]:read-only:bg-panel disabled:bg-panel disabled:text-ink-2";

interface Props {
  field: FieldSpec;
  state: FieldState;
  /** A label for a control that is not a form control of HTML names it by `aria-labelledby`. */
  isGroup?: boolean;
  /** What stands at the end of the line of the label: buttons. */
  actions?: ReactNode;
  children: ReactNode;
}

export function FieldFrame({ field, state, isGroup = false, actions, children }: Props): ReactNode {
  const title = visibleName(field.title, 80);
  return (
    <div className="flex min-w-0 flex-col gap-0.5">
      <div className="flex min-h-6 min-w-0 items-end gap-1">
        {isGroup ? (
          <span id={`${state.id}-label`} className="min-w-0 flex-1 font-medium">
            {title}
          </span>
        ) : (
          <label htmlFor={state.id} className="min-w-0 flex-1 font-medium">
            {title}
          </label>
        )}
        {actions}
      </div>
      {isGroup ? <FieldHelp field={field} state={state} /> : null}
      {children}
      {isGroup ? null : <FieldHelp field={field} state={state} />}
    </div>
  );
}

/** The help of a field with its default, and the findings; the control is described by it. */
export function FieldHelp({ field, state }: { field: FieldSpec; state: FieldState }): ReactNode {
  const byDefault = defaultText(field.default);
  return (
    <div id={`${state.id}-help`} className="text-xs text-ink-2">
      <FindingTexts findings={state.findings} />
      {field.description || byDefault ? (
        <p className="[overflow-wrap:anywhere]">
          <WithCode text={field.description} /> {byDefault ? <span className="whitespace-nowrap">{t.byDefault(byDefault)}</span> : null}
        </p>
      ) : null}
    </div>
  );
}

/** A text in which what stands between backticks is code. */
export function WithCode({ text }: { text: string }): ReactNode {
  return visibleText(text)
    .split("`")
    .map((part, place) => (place % 2 === 0 ? part : <code key={place}>{part}</code>));
}

/** The default in a few words; nothing for an empty one and for what does not fit a line. */
export function defaultText(value: unknown): string {
  if (typeof value === "boolean") return value ? t.on : t.off;
  if (typeof value === "number") return String(value);
  return typeof value === "string" && value !== "" && value.length <= 30 && !value.includes("\n") ? value : "";
}
