/** Sources and files of a message, read when the message is complete and comes into view. */
import { useCallback, type RefObject } from "react";

import { endOf, NOTHING, type MessageEnd } from "../answer/message-end";
import { useIsSeen } from "../ui/use-is-seen";
import { useLoaded, useRunContext } from "./use-run";

const FAILED: MessageEnd = { ...NOTHING, hasFailed: true };

/** Return the end of a message by the number of its event; nothing while it is written, or not yet in view. */
export function useMessageEnd(number: number | null, place: RefObject<HTMLElement | null>): MessageEnd {
  const { contents } = useRunContext();
  const isSeen = useIsSeen(place);
  const load = useCallback(
    async (key: string): Promise<MessageEnd> => {
      if (!key) return NOTHING;
      const body = await contents.eventBody(Number(key));
      return endOf(body);
    },
    [contents],
  );
  const loaded = useLoaded(isSeen && number !== null ? String(number) : "", load);
  return loaded.at === "loaded" ? loaded.value : loaded.at === "failed" ? FAILED : NOTHING;
}
