/** The preview of a fork, computed again a moment after each change. */
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { previewFork, type ForkBody, type ForkPreview } from "../api/copies";

const PAUSE_MS = 400;

export interface Preview {
  data: ForkPreview | null;
  error: string | null;
  /** Whether `data` or `error` belongs to the edits as they are now. */
  isCurrent: boolean;
}

/** Return the preview of a fork; of null, edits that are wrong, the one before. */
export function usePreview(runId: string, body: ForkBody | null): Preview {
  const written = body === null ? null : JSON.stringify(body);
  const [asked, setAsked] = useState(written);
  useEffect(() => {
    if (written === null || written === asked) return;
    const timer = setTimeout(() => setAsked(written), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [written, asked]);
  const { data, error, isFetching, isPlaceholderData } = useQuery({
    queryKey: ["fork-preview", runId, asked],
    queryFn: ({ signal }) => previewFork(runId, JSON.parse(asked ?? "{}") as ForkBody, signal),
    enabled: asked !== null,
    placeholderData: keepPreviousData,
    staleTime: 0,
    gcTime: 0,
  });
  return { data: data ?? null, error: error?.message ?? null, isCurrent: asked !== null && asked === written && !isFetching && !isPlaceholderData };
}
