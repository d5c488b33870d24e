/** The form of a node, made of its component's JSON Schema. Changes go out one by one, by path. */
import { useEffect, useMemo, useRef, type ReactNode } from "react";

import { texts } from "../texts";
import type { NodeFormProps } from "./contract";
import { WithCode } from "./field-frame";
import { FieldList } from "./field-list";
import { FindingTexts, FormProvider, useForm } from "./form-context";
import { fieldsOf, type FieldSpec } from "./form-schema";
import { OtherParameters } from "./other-parameters";

const t = texts.nodeForm;
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
  useEffect(() => {
    const control = focused === null ? null : root.current?.querySelector<HTMLElement>(`[data-field="${CSS.escape(focused)}"]`);
    if (control) focusControl(control);
  }, [focused]);
  return (
    <div ref={root} role="group" aria-label={t.formOf(component?.title ?? "")} className="flex min-w-0 flex-col gap-3">
      {component?.description ? <p className="text-ink-2"><WithCode text={component.description} /></p> : null}
      <FindingTexts findings={findingsAt("")} />
      <FieldList fields={fields} path={[]} values={form} />
      <OtherParameters fields={fields} isWhole={component === null} />
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
