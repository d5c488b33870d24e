/** One edit of a fork: an editor for the value, and its difference from the original. */
import { lazy, Suspense, useId, type ReactNode } from "react";

import { texts } from "../texts";
import { Button } from "../ui/parts";
import { isSent, valueOf, type Edit } from "./edits";

const CodeEditor = lazy(() => import("../ui/code-editor"));
const TextDiff = lazy(() => import("../ui/text-diff"));
const t = texts.fork;

interface Props {
  edit: Edit;
  onChange: (typed: string) => void;
  onRemove: () => void;
}

export function EditCard({ edit, onChange, onRemove }: Props): ReactNode {
  const id = useId();
  const result = valueOf(edit);
  const error = "error" in result ? result.error : null;
  const isChanged = edit.typed !== edit.original;
  const language = edit.isText ? "text" : "json";
  return (
    <section aria-labelledby={id} data-testid="fork-edit" data-kind={edit.kind} data-name={edit.name} className="rounded border border-line p-2">
      <div className="mb-1 flex items-center gap-2">
        <h4 id={id} className="min-w-0 flex-1 truncate font-medium">
          <bdi>{edit.title}</bdi>
        </h4>
        <Button aria-label={t.remove(edit.title)} onClick={onRemove}>
          ✕
        </Button>
      </div>
      <Suspense fallback={<p className="text-ink-2">{texts.copies.loading}</p>}>
        <CodeEditor label={edit.title} language={language} value={edit.typed} isInvalid={error !== null} describedBy={`${id}-note`} className="max-h-64" onChange={onChange} />
      </Suspense>
      <p id={`${id}-note`} className={error === null ? "text-ink-2" : "text-red"}>
        {error ?? (isSent(edit) ? null : t.unchanged)}
      </p>
      {isChanged && error === null ? (
        <Suspense fallback={null}>
          <p className="mt-1 text-ink-2">{t.difference}</p>
          <TextDiff before={edit.original} after={edit.typed} labels={[`${t.original}: ${edit.title}`, `${t.edited}: ${edit.title}`]} language={language} />
        </Suspense>
      ) : null}
    </section>
  );
}
