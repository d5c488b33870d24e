/** One step of both runs: what it read, stored and asked its models, side by side. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { compareStep, type ComparedStep } from "../api/copies";
import { readWholeValue } from "../api/runs";
import { isObject } from "../run-file/rows";
import { texts } from "../texts";
import { count, duration } from "../ui/format";
import { Button, Empty } from "../ui/parts";
import { visibleName, visibleText } from "../ui/visible-text";
import { BothValues, sideOf, type Both } from "./both-values";
import { whereText } from "./rows";

const t = texts.compare.pane;
const OPEN_VALUES = 4;
const SECTIONS = ["inputs", "outputs", "variables", "prompts"] as const;

interface Props {
  a: string;
  b: string;
  stepId: string;
  names: ReadonlyMap<string, string>;
  onClose: () => void;
}

export function StepPane({ a, b, stepId, names, onClose }: Props): ReactNode {
  const { data: step, error } = useQuery({ queryKey: ["compared-step", a, b, stepId], queryFn: ({ signal }) => compareStep(a, b, stepId, signal) });
  return (
    <aside
      aria-label={t.title}
      data-testid="compared-step"
      data-activation={stepId}
      className="flex h-[48%] min-h-64 shrink-0 flex-col border-t-2 border-line-strong bg-surface max-md:absolute max-md:inset-0 max-md:z-30 max-md:h-auto"
    >
      <div className="flex shrink-0 items-start gap-2 border-b border-line px-3 py-1.5">
        <div className="min-w-0 flex-1">
          {step ? (
            <>
              <h2 className="truncate font-semibold">
                <bdi>{visibleName(step.name, 120)}</bdi>{" "}
                <span className="font-normal text-ink-2">{[visibleName(step.component, 40), whereText(step, names)].filter(Boolean).join(" · ")}</span>
              </h2>
              <p className="[overflow-wrap:anywhere]">{step.what === 0 ? t.equal : visibleText(step.sentence)}</p>
            </>
          ) : (
            <h2 className="font-semibold">{t.title}</h2>
          )}
        </div>
        <Button aria-label={texts.close} onClick={onClose}>
          ✕
        </Button>
      </div>
      <div className="min-h-0 flex-1 overflow-auto px-3 py-2" tabIndex={0} role="region" aria-label={t.title}>
        {error ? (
          <p role="alert" className="text-red">
            {visibleText(error.message)}
          </p>
        ) : step ? (
          <Contents a={a} b={b} step={step} />
        ) : (
          <Empty>{texts.compare.loading}</Empty>
        )}
      </div>
    </aside>
  );
}

function Contents({ a, b, step }: { a: string; b: string; step: ComparedStep }): ReactNode {
  const idOf = (side: unknown): string | null => (isObject(side) && typeof side.id === "string" ? side.id : null);
  const [idA, idB] = [idOf(step.a), idOf(step.b)];
  return (
    <>
      <div className="mb-2 grid gap-2 sm:grid-cols-2">
        <SideFacts side="A" runId={a} facts={step.a} stepId={idA} />
        <SideFacts side="B" runId={b} facts={step.b} stepId={idB} />
      </div>
      {SECTIONS.map((section) => {
        const values = step[section].values.map(bothOf);
        if (!values.length && section !== "inputs" && section !== "outputs") return null;
        return (
          <section key={`${step.node_id} ${section}`} className="mb-3">
            <h3 className="font-semibold">{t[section]}</h3>
            {values.length ? null : <p className="text-ink-2">{t.empty}</p>}
            {values.map((both, place) => (
              <BothValues
                key={`${idA} ${idB} ${both.name}`}
                both={both}
                isOpen={both.kind !== "same" && place < OPEN_VALUES}
                loadWhole={
                  section === "prompts" || idA === null || idB === null
                    ? undefined
                    : async () => [await readWholeValue(a, idA, section, both.name), await readWholeValue(b, idB, section, both.name)]
                }
              />
            ))}
            {step[section].cut ? <p className="text-ink-2">{t.cut}</p> : null}
          </section>
        );
      })}
    </>
  );
}

function bothOf(value: Readonly<Record<string, unknown>>): Both {
  const text = (name: string): string => (typeof value[name] === "string" ? value[name] : "");
  return { name: text("name"), kind: text("kind"), a: sideOf(value.a), b: sideOf(value.b) };
}

function SideFacts({ side, runId, facts, stepId }: { side: "A" | "B"; runId: string; facts: unknown; stepId: string | null }): ReactNode {
  if (!isObject(facts) || stepId === null) return <p className="text-ink-2">{t.notIn(side)}</p>;
  const number = (name: string): number | null => (typeof facts[name] === "number" ? facts[name] : null);
  const shown = [
    typeof facts.status === "string" ? visibleName(facts.status, 30) : null,
    duration(number("ms")),
    number("tokens") ? texts.compare.tokens(count(number("tokens"))) : null,
    (number("attempt") ?? 1) > 1 ? t.attempt(number("attempt") ?? 1) : null,
    facts.reused === true ? texts.compare.reused : null,
  ];
  return (
    <div>
      <p>
        <span className="font-semibold">{side}</span> {shown.filter((each) => each !== null).join(" · ")}{" "}
        <Link to="/runs/$runId" params={{ runId }} search={{ step: stepId }} className="inline-block min-h-6 leading-6 text-accent underline">
          {t.openIn(side)}
        </Link>
      </p>
      {typeof facts.error === "string" ? <p className="text-red [overflow-wrap:anywhere]">{visibleText(facts.error)}</p> : null}
    </div>
  );
}
