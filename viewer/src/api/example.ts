/** Starting an example, for a reader who has no agent yet. */
import { request } from "./request";

const TEMPLATE = "customer_support"; // runs on the built-in model
const QUERY = "When do you open?";

/** Keys of one click: a repeated start makes neither a second agent nor a second run. */
export interface ExampleKeys {
  agent: string;
  run: string;
}

/** Make an agent from a template and start a run of it; return the run's id. */
export async function startExample(keys: ExampleKeys): Promise<string> {
  const { id } = await request<{ id: string }>("/viewer/agents", { method: "POST", query: { template: TEMPLATE }, idempotencyKey: keys.agent });
  const body = { query: QUERY };
  const started = await request<{ run_id: string }>(`/agents/${id}/runs`, { method: "POST", body, idempotencyKey: keys.run });
  return started.run_id;
}
