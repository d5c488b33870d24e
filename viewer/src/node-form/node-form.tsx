/** The form of a node, made of its component's JSON Schema. Changes go out one by one, by path. */
import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";

import { texts } from "../texts";
import { Button } from "../ui/parts";
import type { NodeFormProps } from "./contract";
import { WithCode } from "./field-frame";
import { FieldList } from "./field-list";
import { FindingTexts, FormProvider, useForm } from "./form-context";
import { fieldsOf, type FieldSpec } from "./form-schema";
import { OtherParameters } from "./other-parameters";

const t = texts.nodeForm;
const NO_FIELDS: readonly FieldSpec[] = [];
const FOCUSABLE = "input:not(:disabled), select:not(:disabled), textarea, button:not(:disabled), [contenteditable=true], summary";

export default function NodeForm(props: NodeFormProps): ReactNode {
  const { component } = props;
  const fields = useMemo(() => (component ? fieldsOf(component.params) : []), [component]);
  const defaults = useMemo(() => Object.fromEntries(fields.filter((each) => each.default !== undefined).map((each) => [each.name, each.default])), [fields]);
  return (
    <FormProvider key={props.nodeId} {...props} defaults={defaults}>
      <Form fields={fields} />
    </FormProvider>
  );
}

function Form({ fields }: { fields: readonly FieldSpec[] }): ReactNode {
  const { component, form, findingsAt, focused } = useForm();
  const root = useRef<HTMLDivElement>(null);
  const [isJson, setJson] = useState(component === null);
  useEffect(() => {
    if (focused !== null && component !== null) setJson(false); // its field is to be seen
  }, [focused, component]);
  useEffect(() => {
    const control = focused === null ? null : root.current?.querySelector<HTMLElement>(`[data-field="${CSS.escape(focused)}"]`);
    if (control) focusControl(control);
  }, [focused]);
  return (
    <div ref={root} role="group" aria-label={t.formOf(component?.title ?? "")} className="flex min-w-0 flex-col gap-3">
      <div className="flex items-start gap-2">
        <p className="min-w-0 flex-1 text-ink-2">{component?.description ? <WithCode text={component.description} /> : null}</p>
        {component ? (
          <Button aria-pressed={isJson} onClick={() => setJson(!isJson)}>
            {t.asJson}
          </Button>
        ) : null}
      </div>
      <FindingTexts findings={findingsAt("")} />
      {isJson ? null : <FieldList fields={fields} path={[]} values={form} />}
      <OtherParameters key={String(isJson)} fields={isJson ? NO_FIELDS : fields} isWhole={isJson} />
    </div>
  );
}

/** Focus a control, or the first one in it; what it is folded into opens. */
function focusControl(control: HTMLElement): void {
  for (let around = control.closest("details"); around; around = around.parentElement?.closest("details") ?? null) around.open = true;
  const target = control.matches(FOCUSABLE) ? control : (control.querySelector<HTMLElement>(FOCUSABLE) ?? control);
  target.focus();
  control.scrollIntoView({ block: "center" });
}
