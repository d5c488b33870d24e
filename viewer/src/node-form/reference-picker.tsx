/** The references that a node can have, to search and to insert: a button beside each text field. */
import { useState, type ReactNode } from "react";

import { texts } from "../texts";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import type { ReferenceChoice } from "./contract";
import { useForm } from "./form-context";
import { labelOf } from "./reference-chips";
import { SearchPopover, type ListItem } from "./search-list";

const t = texts.nodeForm;
const MOST = 300;

interface Props {
  /** The title of the field. */
  title: string;
  onPick: (reference: string) => void;
  onClosed: () => void;
}

export function ReferencePicker({ title, onPick, onClosed }: Props): ReactNode {
  const { references, isReadOnly } = useForm();
  const [isOpen, setOpen] = useState(false);
  const [words, setWords] = useState("");
  if (isReadOnly) return null;
  const found = findChoices(references, words);
  return (
    <SearchPopover
      isOpen={isOpen}
      onOpen={(next) => {
        setWords("");
        setOpen(next);
      }}
      onClosed={onClosed}
      label={t.searchReferences}
      items={found.slice(0, MOST).map(itemOf)}
      words={words}
      onWords={setWords}
      onSelect={(reference) => {
        setOpen(false);
        onPick(reference);
      }}
      {...(found.length > MOST ? { note: t.more } : {})}
    >
      <Button aria-label={t.insertReference(visibleName(title, 60))} title={t.insertReference(visibleName(title, 60))} className="font-mono">
        {"{ }"}
      </Button>
    </SearchPopover>
  );
}

/** Return the references that have all of the words in their name, node or type. */
export function findChoices(references: readonly ReferenceChoice[], words: string): ReferenceChoice[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return references.filter((each) => {
    const text = `${each.group} ${each.label} ${each.reference} ${each.type}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

function itemOf(choice: ReferenceChoice): ListItem {
  const value = choice.value === undefined ? "" : visibleName(typeof choice.value === "string" ? choice.value : (JSON.stringify(choice.value) ?? ""), 60);
  return {
    key: choice.reference,
    label: visibleName(choice.label, 80),
    detail: value ? `${visibleName(choice.type, 20)} = ${value}` : visibleName(choice.type, 30),
    group: visibleName(choice.group, 60),
  };
}

/** What a reference stands for, in words; null if the node cannot refer to it here. */
export function useReferenceName(): (reference: string) => string | null {
  const { references } = useForm();
  return (reference) => {
    const plain = reference.trim().replace(/^\{+\s*|\s*\}+$/g, "");
    const exact = references.find((each) => each.reference === plain) ?? references.find((each) => /[.[]/.test(plain.charAt(each.reference.length)) && plain.startsWith(each.reference));
    return exact ? `${labelOf(exact, plain.slice(exact.reference.length))} (${visibleName(exact.type, 30)})` : null;
  };
}
