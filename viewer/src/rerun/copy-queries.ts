/** What the dialogs of copies read: the run, its document, the versions of its agent. */
import { queryOptions } from "@tanstack/react-query";

import { readVersion } from "../api/agents";
import { listNewestVersions, readRunDocument } from "../api/copies";
import { readRun } from "../api/runs";

export const runQuery = (runId: string) =>
  queryOptions({ queryKey: ["run", runId], queryFn: ({ signal }) => readRun(runId, signal), staleTime: 0 });

export const runDocumentQuery = (runId: string) =>
  queryOptions({ queryKey: ["run-document", runId], queryFn: ({ signal }) => readRunDocument(runId, signal), retry: false });

export const versionsQuery = (agentId: string) =>
  queryOptions({ queryKey: ["newest-versions", agentId], queryFn: ({ signal }) => listNewestVersions(agentId, signal), enabled: agentId !== "", retry: false, staleTime: 0 });

/** The document of another version than that of the run; `version` is an id or `draft`. */
export const versionQuery = (agentId: string, version: string | null) =>
  queryOptions({
    queryKey: ["version-document", agentId, version],
    queryFn: ({ signal }) => readVersion(agentId, version ?? "", signal),
    enabled: agentId !== "" && version !== null,
    retry: false,
    staleTime: 0,
  });
