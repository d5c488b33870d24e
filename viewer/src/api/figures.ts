/** The routes of figures about runs, and of the state of the deployment. */
import type { Query } from "./base";
import type { Overview, SystemState } from "./replies";
import { request } from "./request";

export function readOverview(query: Query, signal?: AbortSignal): Promise<Overview> {
  return request("/viewer/overview", { query, ...(signal ? { signal } : {}) });
}

export function readSystem(signal?: AbortSignal): Promise<SystemState> {
  return request("/viewer/system", signal ? { signal } : {});
}
