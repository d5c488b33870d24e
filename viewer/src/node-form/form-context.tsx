/** What every field of a form needs: the values, where changes go, and the findings at each field. */
import { createContext, useCallback, useContext, useEffect, useId, useMemo, useState, type ReactNode } from "react";

import { visibleText } from "../ui/visible-text";
import type { Finding, NodeFormProps } from "./contract";
import { changeAt, pathText, placeFindings, placeOf, fieldInForm, valueAt, type Path } from "./form-paths";

type Members = Readonly<Record<string, unknown>>;

interface FormContext extends Omit<NodeFormProps, "onChange" | "focusField"> {
  change: (path: Path, value: unknown) => void;
  findingsAt: (field: string) => readonly Finding[];
  register: (field: string) => () => void;
  /** The field to focus; the innermost one that is shown. */
  focused: string | null;
}

const Context = createContext<FormContext | null>(null);

export function FormProvider({ defaults, children, ...props }: NodeFormProps & { defaults: Members; children: ReactNode }): ReactNode {
  const { form, findings, focusField, onChange } = props;
  const [fields, setFields] = useState<ReadonlySet<string>>(new Set());
  const register = useCallback((field: string) => {
    setFields((known) => new Set([...known, field]));
    return () => setFields((known) => new Set([...known].filter((each) => each !== field)));
  }, []);
  const placed = useMemo(() => placeFindings(findings, form, fields), [findings, form, fields]);
  const focused = focusField === null ? null : placeOf(fieldInForm(focusField, form), [...fields]) || null;
  const value: FormContext = {
    ...props,
    change: (path, changed) => onChange(changeAt(form, defaults, path, changed)),
    findingsAt: (field) => placed.get(field) ?? [],
    register,
    focused,
  };
  return <Context value={value}>{children}</Context>;
}

export function useForm(): FormContext {
  const context = useContext(Context);
  if (!context) throw new Error("A field must be inside of a form.");
  return context;
}

export interface FieldState {
  /** The id of the control; others begin with it. */
  id: string;
  value: unknown;
  set: (value: unknown) => void;
  isReadOnly: boolean;
  isInvalid: boolean;
  findings: readonly Finding[];
  /** For the control: what tests and screen readers find it by. */
  attributes: {
    id: string;
    "data-testid": "field";
    "data-field": string;
    "aria-invalid": boolean;
    "aria-describedby": string;
  };
}

/** A field at a path of the form. Findings inside of it that no other field shows are its own. */
export function useField(path: Path): FieldState {
  const { form, change, findingsAt, register, isReadOnly } = useForm();
  const id = useId();
  const field = pathText(path);
  useEffect(() => register(field), [register, field]);
  const findings = findingsAt(field);
  return {
    id,
    value: valueAt(form, path),
    set: (value) => change(path, value),
    isReadOnly,
    isInvalid: findings.length > 0,
    findings,
    attributes: {
      id,
      "data-testid": "field",
      "data-field": field,
      "aria-invalid": findings.length > 0,
      "aria-describedby": `${id}-help`,
    },
  };
}

/** The message of each finding, under its field. */
export function FindingTexts({ findings }: { findings: readonly Finding[] }): ReactNode {
  return findings.map((finding, place) => (
    <p key={`${finding.code}${place}`} data-tone={finding.severity === "error" ? "red" : "amber"} className="text-tone [overflow-wrap:anywhere]">
      <span aria-hidden="true">{finding.severity === "error" ? "✗ " : "! "}</span>
      {visibleText(finding.message)}
    </p>
  ));
}
