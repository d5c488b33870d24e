/** The form of a run that a budget has stopped: what was asked for, and a new limit. */
import { useId, useState, type FormEvent, type ReactNode } from "react";

import type { BudgetExceeded } from "../store/run";
import { texts } from "../texts";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { SendError, useSender } from "./open-form";
import { useRun, useRunContext, type RunActions } from "./use-run";

const t = texts.budget;

export function BudgetPane(): ReactNode {
  const exceeded = useRun((state) => (state.header?.status === "waiting" ? (state.server?.budgetExceeded ?? null) : null));
  const mayRaise = useRun((state) => state.server?.may.raise_budget ?? false);
  const { actions } = useRunContext();
  if (!exceeded) return null;
  const amount = (value: string): string => visibleName(`${value} ${exceeded.measure === "money" ? (exceeded.currency ?? "") : exceeded.measure}`, 80);
  return (
    <section aria-label={t.title} data-tone="violet" data-border="thick" className="rounded bg-tone-soft p-3">
      <h2 className="mb-1 font-semibold text-tone">{t.title}</h2>
      <p className="mb-2">{t.text(amount(exceeded.asked), amount(exceeded.spent), amount(exceeded.limit))}</p>
      {actions && mayRaise ? <RaiseForm exceeded={exceeded} actions={actions} /> : null}
    </section>
  );
}

function RaiseForm({ exceeded, actions }: { exceeded: BudgetExceeded; actions: RunActions }): ReactNode {
  const id = useId();
  const [limit, setLimit] = useState(String(2 * Math.ceil(Number(exceeded.spent) + Number(exceeded.asked)) || ""));
  const [invalid, setInvalid] = useState<string | null>(null);
  const { send, isBusy, error } = useSender(actions);
  const isOwn = exceeded.scope === "run";
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    const number = Number(limit);
    if (isOwn && !(number > 0)) {
      setInvalid(t.positive);
      return;
    }
    setInvalid(null);
    const currency = exceeded.currency === null ? {} : { currency: exceeded.currency };
    void send(isOwn ? { budget: { [exceeded.measure]: number, ...(exceeded.measure === "money" ? currency : {}) } } : {}, t.sent);
  };
  return (
    <form noValidate onSubmit={submit} className="flex flex-col items-start gap-2">
      {isOwn ? (
        <>
          <label htmlFor={id} className="font-medium">
            {t.field(visibleName(exceeded.measure, 40))}
          </label>
          <input
            id={id}
            inputMode="decimal"
            aria-invalid={invalid !== null}
            className="min-h-8 w-48 rounded border border-line-strong bg-surface px-2"
            value={limit}
            onChange={(event) => setLimit(event.target.value)}
          />
        </>
      ) : (
        <p>{t.other(visibleName(exceeded.scope, 40))}</p>
      )}
      <SendError error={invalid ?? error} />
      <Button type="submit" disabled={isBusy} className="border-accent! bg-accent! px-3! py-1! font-medium text-surface!">
        {isOwn ? t.submit : t.resume}
      </Button>
    </form>
  );
}
