/** The draft was changed elsewhere: what differs, by node and field, and the author's decision. */
import * as Tabs from "@radix-ui/react-tabs";
import { useDeferredValue, useMemo, useState, type ReactNode } from "react";

import { texts } from "../texts";
import { Button } from "../ui/parts";
import { TabList } from "../ui/tabs";
import { visibleName } from "../ui/visible-text";
import { VersionDifference } from "../versions/version-difference";
import { changedByBoth } from "./document/changes";
import { comparable, type Document } from "./document/document";
import { writeJson } from "./document/json";
import { useDocument, useDraft, useEditor } from "./editor-context";
import type { Conflict } from "./session/draft-session";

const t = texts.editor.conflict;
const SIDES = ["others", "yours", "both"] as const;
type Side = (typeof SIDES)[number];
const MOST_NAMES = 10;

export function ConflictBar(): ReactNode {
  const conflict = useDraft((state) => state.conflict);
  return conflict ? <Decision conflict={conflict} /> : null;
}

function Decision({ conflict }: { conflict: Conflict }): ReactNode {
  const { session, notify } = useEditor();
  const document = useDeferredValue(useDocument());
  const decide = (choice: "mine" | "theirs" | "merge"): void => {
    session.decide(choice).catch((error: unknown) => notify(error instanceof Error ? error.message : String(error), true));
  };
  const problem = conflict.merged === null ? problemOf(conflict, document) : null;
  return (
    <section aria-label={t.title} data-testid="conflict" className="flex max-h-[60dvh] shrink-0 flex-col gap-2 overflow-auto border-b border-line px-3 py-2">
      <div role="alert" data-tone="amber" className="rounded bg-tone-soft px-2 py-1">
        <h2 className="font-semibold text-tone">{t.title}</h2>
        <p>{t.text}</p>
        {problem === null ? null : <p>{problem}</p>}
      </div>
      <div className="flex flex-wrap gap-2">
        <Button title={t.mineHint} onClick={() => decide("mine")}>
          {t.mine}
        </Button>
        <Button title={t.theirsHint} onClick={() => decide("theirs")}>
          {t.theirs}
        </Button>
        <Button disabled={problem !== null} title={problem ?? t.mergeHint} onClick={() => decide("merge")}>
          {t.merge}
        </Button>
      </div>
      <Differences conflict={conflict} document={document} />
    </section>
  );
}

function problemOf({ base, theirs }: Conflict, mine: Document): string {
  const names = changedByBoth(base, mine, theirs);
  if (!names.length) return t.loose;
  return t.notMerged([...names.slice(0, MOST_NAMES).map((name) => visibleName(name, 60)), ...(names.length > MOST_NAMES ? ["…"] : [])].join(", "));
}

function Differences({ conflict, document }: { conflict: Conflict; document: Document }): ReactNode {
  const [side, setSide] = useState<Side>("others");
  const [base, mine, theirs] = useMemo(() => [conflict.base, document, conflict.theirs].map(comparable), [conflict.base, conflict.theirs, document]);
  const pairs = { others: [base, theirs], yours: [base, mine], both: [theirs, mine] } as const;
  const [before = {}, after = {}] = pairs[side];
  const jsonTexts = useMemo((): [string, string] => [writeJson(before), writeJson(after)], [before, after]);
  return (
    <Tabs.Root value={side} onValueChange={(value) => setSide(SIDES.find((each) => each === value) ?? "others")} className="flex min-w-0 flex-col gap-2">
      <TabList label={t.compare} tabs={SIDES} names={t.sides} className="border-b border-line" />
      <Tabs.Content value={side} tabIndex={-1}>
        <VersionDifference key={side} before={before} after={after} labels={t.labels[side]} jsonTexts={jsonTexts} />
      </Tabs.Content>
    </Tabs.Root>
  );
}
