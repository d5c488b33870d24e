/** Two fields for a range of time, in the time zone of the settings. */
import { useState, type FormEvent, type ReactNode } from "react";

import { texts } from "../texts";
import { clock, day } from "./format";
import { Button } from "./parts";
import { readSettings } from "./settings";

const t = texts.overview;
const FIELD = "min-h-7 min-w-0 rounded border border-line-strong bg-surface px-1 aria-invalid:border-red";

interface Props {
  from: string | undefined;
  to: string | undefined;
  isValid: (from: string, to: string) => boolean;
  /** What is wrong with a range that is not valid. */
  error: string;
  onChange: (from: string, to: string) => void;
}

export function TimeRange({ from, to, isValid, error, onChange }: Props): ReactNode {
  const [begin, setBegin] = useState(() => fieldValue(from));
  const [end, setEnd] = useState(() => fieldValue(to));
  const [isWrong, setWrong] = useState(false);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    const [first, last] = [isoOf(begin), isoOf(end)];
    const isRight = first !== null && last !== null && isValid(first, last);
    setWrong(!isRight);
    if (isRight) onChange(first, last);
  };
  return (
    <form onSubmit={submit} className="flex flex-wrap items-center gap-1">
      <label className="flex items-center gap-1">
        <span className="text-ink-2">{t.from}</span>
        <input type="datetime-local" step="any" required value={begin} aria-invalid={isWrong} onChange={(event) => setBegin(event.target.value)} className={FIELD} />
      </label>
      <label className="flex items-center gap-1">
        <span className="text-ink-2">{t.to}</span>
        <input type="datetime-local" step="any" required value={end} aria-invalid={isWrong} onChange={(event) => setEnd(event.target.value)} className={FIELD} />
      </label>
      <Button type="submit">{t.apply}</Button>
      {isWrong ? (
        <span role="alert" data-tone="red" className="text-tone">
          {error}
        </span>
      ) : null}
    </form>
  );
}

/** Return a time as the field has it: without a zone, to the second. */
function fieldValue(iso: string | undefined): string {
  if (iso === undefined) return "";
  const at = Date.parse(iso);
  return `${day(at)}T${clock(at)}`;
}

function isoOf(written: string): string | null {
  const at = Date.parse(readSettings().zone === "utc" ? `${written}Z` : written);
  return Number.isNaN(at) ? null : new Date(at).toISOString();
}
