/** A moment, as the settings say: how long ago, with the time as a hint, or the time. */
import type { ReactNode } from "react";

import { age, moment } from "./format";
import { useSettings } from "./settings";

/** `now` is the server's time, in milliseconds since 1970; 0 before it is known. */
export function Moment({ at, now }: { at: number; now: number }): ReactNode {
  const { times } = useSettings();
  const isRelative = times === "relative" && now > 0;
  return (
    <time dateTime={new Date(at).toISOString()} {...(isRelative ? { title: moment(at) } : {})}>
      {isRelative ? age(at, now) : moment(at)}
    </time>
  );
}
