/** What is fetched once and kept: TanStack Query with the rules of the pages. */
import { QueryClient, queryOptions } from "@tanstack/react-query";

import type { About } from "./replies";
import { ApiError } from "./request";
import { readAbout } from "./sign-in";

export function makeQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        networkMode: "always", // a deployment on this machine answers without a network
        staleTime: 30_000,
        gcTime: 300_000,
        refetchOnWindowFocus: false,
        retry: (failures, error) => failures < 2 && error instanceof ApiError && (error.status === 0 || error.status >= 500),
      },
    },
  });
}

export const queryClient = makeQueryClient();

/** Who is signed in; this alone decides what is shown. */
export const aboutQuery = queryOptions<About>({
  queryKey: ["about"],
  queryFn: ({ signal }) => readAbout(signal),
  staleTime: Number.POSITIVE_INFINITY,
  gcTime: Number.POSITIVE_INFINITY,
});

/** Return who is signed in; someone who was not is asked for again. Raises ApiError. */
export async function findReader(): Promise<About> {
  const known = queryClient.getQueryData(aboutQuery.queryKey);
  return known?.signed_in ? known : queryClient.fetchQuery({ ...aboutQuery, staleTime: 0 });
}

/** Forget everything that was read for the reader who was signed in. */
export function forgetReader(): void {
  queryClient.removeQueries({ predicate: (query) => query.queryKey[0] !== aboutQuery.queryKey[0] });
  queryClient.setQueryData(aboutQuery.queryKey, (known) => known && { base: known.base, build: known.build, release: known.release, signed_in: false });
}
