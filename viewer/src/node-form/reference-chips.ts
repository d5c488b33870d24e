/** References in a CodeMirror field: shown as chips with the name of their node, and completed after `{` and `/`. */
import { autocompletion, completionKeymap, startCompletion, type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { Prec, StateEffect, type EditorState, type Extension, type Range } from "@codemirror/state";
import { Decoration, EditorView, keymap, tooltips, ViewPlugin, WidgetType, type DecorationSet, type ViewUpdate } from "@codemirror/view";

import { visibleName } from "../ui/visible-text";
import type { ReferenceChoice } from "./contract";

/** What a field asks for when it shows or completes references; the references change while it is there. */
export interface ReferenceSource {
  references: () => readonly ReferenceChoice[];
  /** The name of a reference that is none of them, for its chip; null if there is no such node. */
  unknown: (reference: string) => string;
}

/** In braces: an output of a node with a path, a variable, or an alias of the container. */
const REFERENCE = /\{[ \t]*([A-Za-z0-9_:]+@[A-Za-z0-9_.-]+(?:\[-?\d+\][A-Za-z0-9_.-]*)*|(?:sys|env)\.[A-Za-z0-9_.]+|item|index|result)[ \t]*\}/gi;

/** Say that the references have changed. */
export const referencesChanged = StateEffect.define<null>();

export interface FoundReference {
  from: number;
  to: number;
  reference: string;
}

export function findReferences(text: string): FoundReference[] {
  return [...text.matchAll(REFERENCE)].map((found) => ({ from: found.index, to: found.index + found[0].length, reference: found[1] ?? "" }));
}

/** Return the choice that a reference begins with (a path may lead further into its value), and the rest. */
export function choiceOf(reference: string, choices: readonly ReferenceChoice[]): { choice: ReferenceChoice; rest: string } | null {
  const exact = choices.find((each) => each.reference === reference);
  if (exact) return { choice: exact, rest: "" };
  const longer = choices.find((each) => reference.startsWith(each.reference) && /[.[]/.test(reference.charAt(each.reference.length)));
  return longer ? { choice: longer, rest: reference.slice(longer.reference.length) } : null;
}

/** How a reference is shown: `Search · content`. */
export function labelOf(choice: ReferenceChoice, rest = ""): string {
  const isGlobal = choice.group === "sys" || choice.group === "env";
  return visibleName(`${isGlobal ? "" : `${choice.group} · `}${choice.label}${rest}`, 80);
}

export function chips(source: ReferenceSource): Extension {
  const plugin = ViewPlugin.fromClass(
    class {
      decorations: DecorationSet;
      constructor(view: EditorView) {
        this.decorations = decorate(view.state, source);
      }
      update(update: ViewUpdate): void {
        const isChanged = update.transactions.some((each) => each.effects.some((effect) => effect.is(referencesChanged)));
        if (update.docChanged || isChanged) this.decorations = decorate(update.state, source);
      }
    },
    { decorations: (value) => value.decorations, provide: (value) => EditorView.atomicRanges.of((view) => view.plugin(value)?.decorations ?? Decoration.none) },
  );
  return [plugin, LOOK];
}

/** Complete references after `{` and `/`. `isWhole`: the field is a reference as a whole, without braces. */
export function completion(source: ReferenceSource): Extension {
  return [
    autocompletion({ override: [(context) => complete(context, source)], icons: false, maxRenderedOptions: 200, interactionDelay: 0 }),
    tooltips({ position: "fixed", parent: document.body }),
    Prec.high(keymap.of([{ key: "Ctrl-Space", run: startCompletion }, ...completionKeymap])),
  ];
}

function complete(context: CompletionContext, source: ReferenceSource): CompletionResult | null {
  const typed = context.matchBefore(/\{[^{}\n]*|(?:^|[\s>(])\/[^\s/{}]*/);
  if (!typed && !context.explicit) return null;
  const trigger = typed ? typed.from + typed.text.search(/[{/]/) : context.pos;
  return {
    from: typed ? trigger + 1 : context.pos,
    options: source.references().map((choice, place, all): Completion => {
      const option: Completion = {
        label: labelOf(choice),
        detail: visibleName(choice.type, 30),
        section: { name: visibleName(choice.group, 60), rank: all.findIndex((each) => each.group === choice.group) },
        boost: -Math.min(place, 99),
        apply: (view, _, __, to) => insert(view, choice.reference, trigger, to),
      };
      return choice.value === undefined ? option : { ...option, info: visibleName(JSON.stringify(choice.value) ?? "", 300) };
    }),
    validFor: /^[^{}\n]*$/,
  };
}

/** Put a reference in braces at a place of the text. */
export function insert(view: EditorView, reference: string, from: number, to: number): void {
  const rest = view.state.sliceDoc(to, to + 1) === "}" ? 1 : 0;
  const text = `{${reference}}`;
  view.dispatch({ changes: { from, to: to + rest, insert: text }, selection: { anchor: from + text.length }, userEvent: "input.complete" });
}

function decorate(state: EditorState, source: ReferenceSource): DecorationSet {
  const choices = source.references();
  const ranges = findReferences(state.doc.toString()).flatMap(({ from, to, reference }): Range<Decoration>[] => {
    const found = choiceOf(reference, choices);
    if (!found && !/[@.]/.test(reference)) return []; // outside of an Iteration `{item}` is a text
    const label = found ? labelOf(found.choice, found.rest) : source.unknown(reference);
    return [Decoration.replace({ widget: new Chip(label, reference, found !== null) }).range(from, to)];
  });
  return Decoration.set(ranges);
}

class Chip extends WidgetType {
  constructor(
    readonly label: string,
    readonly reference: string,
    readonly isKnown: boolean,
  ) {
    super();
  }
  override eq(other: Chip): boolean {
    return other.label === this.label && other.reference === this.reference && other.isKnown === this.isKnown;
  }
  override toDOM(): HTMLElement {
    const chip = document.createElement("span");
    chip.className = this.isKnown ? "cm-reference" : "cm-reference cm-reference-unknown";
    chip.textContent = this.isKnown ? this.label : `? ${this.label}`;
    chip.title = `{${this.reference}}`;
    chip.dataset.reference = this.reference;
    return chip;
  }
  override ignoreEvent(): boolean {
    return false;
  }
}

const LOOK = EditorView.theme({
  ".cm-reference": {
    padding: "0 4px",
    borderRadius: "4px",
    backgroundColor: "var(--accent-soft)",
    color: "var(--accent)",
    border: "1px solid var(--accent)",
    fontFamily: "var(--font-sans)",
    overflowWrap: "anywhere",
  },
  ".cm-reference-unknown": { backgroundColor: "var(--red-soft)", color: "var(--red)", borderColor: "var(--red)", borderStyle: "dashed" },
});
