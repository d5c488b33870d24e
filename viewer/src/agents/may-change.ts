/** Whether the reader may change something; a token of the kind viewer may not. */
import { useQuery } from "@tanstack/react-query";

import { aboutQuery } from "../api/queries";

export function useMayChange(): boolean {
  const { data } = useQuery({ ...aboutQuery, enabled: false });
  return data?.may?.includes("change") ?? false;
}
