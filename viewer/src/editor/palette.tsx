/** The palette: components and tools by group, to drag onto the drawing or to add with Enter. */
import { useId, useState, type ReactNode } from "react";

import type { ComponentDescription } from "../catalogue/catalogue";
import { texts } from "../texts";
import { Button } from "../ui/parts";
import { visibleName } from "../ui/visible-text";
import { nodesOf } from "./document/document";
import { useDraft, useEditor, useSelection } from "./editor-context";
import { ComponentIcon } from "./component-icon";
import { addingProblem, addInView, COMPONENT_TYPE, giveTool } from "./palette-actions";

const t = texts.editor.palette;

export function Palette({ onClose }: { onClose?: () => void }): ReactNode {
  const { catalogue } = useEditor();
  const [words, setWords] = useState("");
  const id = useId();
  const listed = [...catalogue.components, ...catalogue.tools.filter((tool) => !catalogue.components.some((each) => each.name === tool.name))];
  const found = listed.filter((each) => matches(each, words));
  return (
    <nav aria-label={t.title} className="flex min-h-0 flex-1 flex-col">
      <div className="flex items-center gap-1 p-2">
        <input
          type="search"
          aria-label={t.search}
          placeholder={t.search}
          value={words}
          onChange={(event) => setWords(event.target.value)}
          className="min-h-7 w-full min-w-0 rounded border border-line-strong bg-surface px-2"
        />
        {onClose ? (
          <Button aria-label={texts.close} onClick={onClose}>
            ✕
          </Button>
        ) : null}
      </div>
      <p id={id} className="px-2 pb-1 text-[11px] text-ink-2">
        {t.hint}
      </p>
      <div className="min-h-0 flex-1 overflow-auto px-2 pb-3">
        {found.length ? null : <p className="py-2 text-ink-2">{t.none}</p>}
        {catalogue.groups.map((group) => {
          const members = found.filter((each) => each.group === group.id);
          return members.length ? (
            <section key={group.id} aria-label={visibleName(group.title, 60)}>
              <h2 className="mt-2 mb-0.5 text-[11px] font-semibold tracking-wide text-ink-2 uppercase">{visibleName(group.title, 60)}</h2>
              <ul>
                {members.map((component) => (
                  <PaletteItem key={component.name} component={component} hintId={id} />
                ))}
              </ul>
            </section>
          ) : null;
        })}
      </div>
    </nav>
  );
}

function matches(component: ComponentDescription, words: string): boolean {
  const text = `${component.name} ${component.title} ${component.description}`.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function PaletteItem({ component, hintId }: { component: ComponentDescription; hintId: string }): ReactNode {
  const editor = useEditor();
  const { nodes } = useSelection();
  const problem = useDraft((state) => addingProblem(state.document ?? {}, component));
  const title = visibleName(component.title, 60);
  const [only] = nodes.length === 1 ? nodes : [];
  const agent = useDraft((state) => (component.isTool && only !== undefined ? nodesOf(state.document ?? {}).get(only) : undefined));
  const isForAgent = agent?.label === "Agent" && editor.catalogue.tools.some((each) => each.name === component.name);
  return (
    <li className="flex items-center gap-1">
      <button
        type="button"
        data-testid="palette-item"
        data-component={component.name}
        draggable={problem === null}
        aria-disabled={problem !== null}
        aria-describedby={hintId}
        title={problem ?? visibleName(component.description, 300)}
        onDragStart={(event) => {
          event.dataTransfer.setData(COMPONENT_TYPE, component.name);
          event.dataTransfer.effectAllowed = "copy";
        }}
        onClick={() => (problem === null ? addInView(editor, component, nodes) : editor.notify(problem, true))}
        className="flex min-h-7 w-full min-w-0 cursor-grab items-center gap-1.5 rounded px-1.5 text-left hover:bg-raised aria-disabled:cursor-default aria-disabled:text-ink-2"
      >
        <span className="shrink-0 text-ink-2">
          <ComponentIcon component={component.name} group={component.group} />
        </span>
        <span className="truncate">{title}</span>
      </button>
      {isForAgent ? (
        <Button aria-label={t.toAgent(title, visibleName(agent.name, 60))} title={t.toAgent(title, visibleName(agent.name, 60))} onClick={() => giveTool(editor, component.name, agent.id)}>
          +⚒
        </Button>
      ) : null}
    </li>
  );
}
