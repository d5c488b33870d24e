/** A choice among the agents of the tenant. */
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { listAgents } from "../api/runs";
import { visibleName } from "./visible-text";

export const SELECT = "min-h-7 max-w-48 rounded border border-line-strong bg-surface px-1";

interface Props {
  label: string;
  /** The choice of all of them. */
  all: string;
  /** The id of the chosen agent. */
  value: string | undefined;
  /** "" for all. */
  onChange: (id: string) => void;
}

export function AgentSelect({ label, all, value, onChange }: Props): ReactNode {
  const agents = useQuery({ queryKey: ["agents"], queryFn: ({ signal }) => listAgents(signal) });
  const isListed = value === undefined || agents.data?.agents.some((agent) => agent.id === value);
  return (
    <label className="flex items-center gap-1">
      <span className="text-ink-2">{label}</span>
      <select className={SELECT} value={value ?? ""} onChange={(event) => onChange(event.target.value)}>
        <option value="">{all}</option>
        {agents.data?.agents.map((agent) => (
          <option key={agent.id} value={agent.id}>
            {visibleName(agent.title, 60)}
          </option>
        ))}
        {isListed ? null : <option value={value}>{value}</option>}
      </select>
    </label>
  );
}
