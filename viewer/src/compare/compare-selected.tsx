/** Compares the two selected runs of the list; the older one is A. */
import { useNavigate } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { texts } from "../texts";
import { Button } from "../ui/parts";

export function CompareSelected({ selected }: { selected: ReadonlySet<string> }): ReactNode {
  const navigate = useNavigate();
  const [a, b, ...others] = [...selected].sort(); // ids are in the order of time
  if (a === undefined || b === undefined || others.length) return null;
  return <Button onClick={() => void navigate({ to: "/compare/$a/$b", params: { a, b }, search: {} })}>{texts.compare.buttonOfSelection}</Button>;
}
