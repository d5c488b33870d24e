/** Files that were sent with a message, read when the turn comes into view. */
import { useQuery } from "@tanstack/react-query";
import { useRef, type ReactNode } from "react";

import { FileList } from "../answer/files";
import { readFile } from "../api/files";
import { readRun } from "../api/runs";
import { sentFilesOf } from "../run-file/rows";
import { useIsSeen } from "../ui/use-is-seen";

/** `messages`: how many were sent to the run. The run shows the files of the last one. */
export function SentFiles({ runId, messages }: { runId: string; messages: number }): ReactNode {
  const place = useRef<HTMLDivElement>(null);
  const isSeen = useIsSeen(place);
  const { data: files = [] } = useQuery({
    queryKey: ["play", "files", runId, messages],
    queryFn: async ({ signal }) => sentFilesOf((await readRun(runId, signal)).request.files),
    enabled: isSeen,
    staleTime: Number.POSITIVE_INFINITY,
  });
  return (
    <div ref={place} className={files.length ? "self-end" : "-mt-2"}>
      <FileList files={files} download={readFile} />
    </div>
  );
}
