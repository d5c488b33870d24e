/** One edit of a fork: an editor for the value, and its difference from the original. */
import { lazy, Suspense, useId, type ReactNode } from "react";

import { inputsOf, hasMask } from "../rerun/begin-form";
import { CONTROL } from "../rerun/budget-fields";
import { InputFields } from "../rerun/request-fields";
import type { FormField } from "../store/run";
import { texts } from "../texts";
import { Button } from "../ui/parts";
import { isSent, shownTexts, typedForm, valueOf, type Edit } from "./edits";

const CodeEditor = lazy(() => import("../ui/code-editor"));
const TextDiff = lazy(() => import("../ui/text-diff"));
const t = texts.fork;

interface Props {
  edit: Edit;
  agentId: string;
  /** The fields of Begin's form; none if it has no form. */
  fields: readonly FormField[];
  onChange: (typed: string) => void;
  onRemove: () => void;
}

export function EditCard({ edit, agentId, fields, onChange, onRemove }: Props): ReactNode {
  const id = useId();
  const result = valueOf(edit, fields);
  const error = isSent(edit) && "error" in result ? result.error : null;
  const isForm = edit.kind === "inputs" && fields.length > 0;
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
      {edit.isSecret ? (
        <SecretInput edit={edit} describedBy={`${id}-note`} onChange={onChange} />
      ) : isForm ? (
        <FormInputs edit={edit} agentId={agentId} fields={fields} onChange={onChange} />
      ) : (
        <Suspense fallback={<p className="text-ink-2">{texts.copies.loading}</p>}>
          <CodeEditor label={edit.title} language={languageOf(edit)} value={edit.typed} isInvalid={error !== null} describedBy={`${id}-note`} className="max-h-64" onChange={onChange} />
        </Suspense>
      )}
      {!edit.isSecret && hasMask(edit.original) ? <p className="text-ink-2">{t.masks}</p> : null}
      <p id={`${id}-note`} className={error === null ? "text-ink-2" : "text-red"}>
        {error ?? noteOf(edit)}
      </p>
      {isSent(edit) && error === null && !edit.isSecret ? <Difference edit={edit} fields={fields} /> : null}
    </section>
  );
}

function languageOf(edit: Edit): "text" | "json" {
  return edit.isText ? "text" : "json";
}

function noteOf(edit: Edit): string | null {
  if (!edit.isSecret) return isSent(edit) ? null : t.unchanged;
  if (!isSent(edit)) return t.secretKept;
  return edit.typed === "" ? t.secretRemoved : t.secretReplaced;
}

/** A secret is never shown: the field is empty, and only what is typed into it is sent. */
function SecretInput({ edit, describedBy, onChange }: { edit: Edit; describedBy: string; onChange: (typed: string) => void }): ReactNode {
  const isKept = !isSent(edit);
  return (
    <div className="flex items-center gap-2">
      <input
        type="password"
        autoComplete="new-password"
        aria-label={edit.title}
        aria-describedby={describedBy}
        className={CONTROL}
        value={isKept ? "" : edit.typed}
        placeholder={isKept ? t.secretStored : ""}
        onChange={(event) => onChange(event.target.value || edit.original)}
      />
      <Button onClick={() => onChange("")}>{t.removeSecret}</Button>
    </div>
  );
}

function FormInputs({ edit, agentId, fields, onChange }: Pick<Props, "edit" | "agentId" | "fields" | "onChange">): ReactNode {
  const typed = typedForm(edit);
  const result = inputsOf(fields, typed);
  return (
    <InputFields
      agentId={agentId}
      fields={fields}
      typed={typed}
      errors={isSent(edit) && "errors" in result ? result.errors : {}}
      onChange={(changed) => onChange(JSON.stringify(changed, null, 2))}
    />
  );
}

function Difference({ edit, fields }: Pick<Props, "edit" | "fields">): ReactNode {
  const [before, after] = shownTexts(edit, fields);
  return (
    <Suspense fallback={null}>
      <p className="mt-1 text-ink-2">{t.difference}</p>
      <TextDiff before={before} after={after} labels={[`${t.original}: ${edit.title}`, `${t.edited}: ${edit.title}`]} language={languageOf(edit)} />
    </Suspense>
  );
}
