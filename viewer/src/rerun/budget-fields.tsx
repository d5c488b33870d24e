/** Fields for the limits of a new run. */
import { useId, type ReactNode } from "react";

import { texts } from "../texts";
import type { TypedBudget } from "./budget";

const t = texts.copies.budget;
export const CONTROL = "min-h-8 w-full rounded border border-line-strong bg-surface px-2 aria-invalid:border-red";

interface Props {
  typed: TypedBudget;
  onChange: (typed: TypedBudget) => void;
  error: string | null;
}

export function BudgetFields({ typed, onChange, error }: Props): ReactNode {
  const id = useId();
  const field = (name: keyof TypedBudget): ReactNode => (
    <div className="min-w-0 flex-1 basis-20">
      <label htmlFor={`${id}-${name}`} className="block truncate text-ink-2">
        {t[name]}
      </label>
      <input
        id={`${id}-${name}`}
        className={CONTROL}
        autoComplete="off"
        inputMode={name === "currency" ? "text" : "decimal"}
        value={typed[name]}
        onChange={(event) => onChange({ ...typed, [name]: event.target.value })}
      />
    </div>
  );
  return (
    <fieldset aria-describedby={`${id}-hint`}>
      <legend className="font-medium">{t.title}</legend>
      <p id={`${id}-hint`} className="text-ink-2">
        {t.hint}
      </p>
      <div className="flex flex-wrap gap-2">{(["tokens", "calls", "seconds", "money", "currency"] as const).map((name) => <div key={name} className="contents">{field(name)}</div>)}</div>
      {error === null ? null : (
        <p role="alert" className="text-red">
          {error}
        </p>
      )}
    </fieldset>
  );
}
