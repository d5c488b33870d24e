/** The catalogue of components, and what the reader's tenant may choose for a field, by TanStack Query. */
import { keepPreviousData, queryOptions, useQuery, type UseQueryResult } from "@tanstack/react-query";

import { listChoices, readCatalogue, type ChoiceKind } from "../api/components";
import { queryClient } from "../api/queries";
import type { ChoiceList } from "../api/replies";
import type { Catalogue } from "./catalogue";
import { parseCatalogue } from "./parse-catalogue";

interface Known {
  catalogue: Catalogue;
  etag: string | null;
}

const FRESH_MS = 300_000; // later it is asked for again by its ETag: a deployment may have got other plugins

/** The catalogue; one that is known already is fetched again only if it has changed. */
export const catalogueQuery = queryOptions<Known, Error, Catalogue>({
  queryKey: ["catalogue"],
  queryFn: async ({ signal }) => {
    const known = queryClient.getQueryData<Known>(["catalogue"]);
    const { body, etag } = await readCatalogue(known?.etag ?? null, signal);
    return known !== undefined && body === null ? known : { catalogue: parseCatalogue(body), etag };
  },
  select: ({ catalogue }) => catalogue,
  staleTime: FRESH_MS,
  gcTime: Number.POSITIVE_INFINITY,
});

/** Return the fields of a component or tool that may contain secrets; none while the catalogue is not known. */
export function secretFields(name: string): readonly string[] {
  const known = queryClient.getQueryData<Known>(["catalogue"])?.catalogue;
  return [...(known?.components ?? []), ...(known?.tools ?? [])].find((each) => each.name === name)?.secrets ?? [];
}

export function useCatalogue(): UseQueryResult<Catalogue> {
  return useQuery(catalogueQuery);
}

/** Return the choices whose name or value has the words; while others are looked for, those of before. */
export function useChoices(kind: ChoiceKind, words: string, isEnabled = true): UseQueryResult<ChoiceList> {
  return useQuery({
    queryKey: ["choices", kind, words],
    queryFn: ({ signal }) => listChoices(kind, words, signal),
    placeholderData: keepPreviousData,
    enabled: isEnabled,
  });
}
