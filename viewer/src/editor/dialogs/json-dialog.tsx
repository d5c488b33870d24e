/** The JSON of the draft. */
import { lazy, Suspense, type ReactNode } from "react";

import { texts } from "../../texts";
import { Dialog } from "../../ui/dialog";
import { CopyButton, Empty } from "../../ui/parts";
import { writeJson } from "../document/json";
import { useDocument } from "../editor-context";

const CodeEditor = lazy(() => import("../../ui/code-editor"));
const t = texts.editor;

export function JsonDialog({ onClose }: { onClose: () => void }): ReactNode {
  const document = useDocument();
  const text = writeJson(document, 2);
  return (
    <Dialog title={t.json.title} description={t.json.text} size="large" onClose={onClose}>
      <div className="mb-1 self-end">
        <CopyButton text={() => text} />
      </div>
      <Suspense fallback={<Empty>{texts.inspector.loading}</Empty>}>
        <CodeEditor value={text} onChange={() => undefined} label={t.json.label} language="json" isReadOnly className="max-h-[65dvh]" />
      </Suspense>
    </Dialog>
  );
}
