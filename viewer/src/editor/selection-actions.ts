/** What is done with the selection: deleting, duplicating, grouping, aligning, laying out. */
import { texts } from "../texts";
import { alignNodes, tidy, type Alignment } from "./document/arrange";
import { copyNodes, pasteNodes } from "./document/clipboard";
import { deleteNodes, disconnect } from "./document/commands";
import { groupNodes, ungroup, type ContainerKind } from "./document/containers";
import { nodesOf } from "./document/document";
import type { JsonObject } from "./document/json";
import type { Editor, Selection } from "./editor-context";

const t = texts.editor;

export function removeSelected(editor: Editor, { nodes, edges }: Selection): void {
  if (editor.isReadOnly || (!nodes.length && !edges.length)) return;
  const isDone = editor.perform(nodes.length ? t.done.remove : t.done.disconnect, (document) => {
    const cut = edges.length ? disconnect(document, edges) : document;
    return nodes.length ? deleteNodes(cut, nodes) : cut;
  });
  if (isDone) show(editor, []);
}

/** Select nodes; if the focus was on the drawing, it goes to the first of them, or stays on the drawing. */
function show(editor: Editor, ids: readonly string[]): void {
  editor.select({ nodes: ids, edges: [] });
  const { activeElement } = document;
  const region = document.querySelector<HTMLElement>("[data-canvas]");
  if (activeElement !== document.body && !region?.contains(activeElement)) return;
  requestAnimationFrame(() => (region?.querySelector<HTMLElement>(`[data-focus="${CSS.escape(ids[0] ?? "")}"]`) ?? region)?.focus());
}

export function paste(editor: Editor, text: string, name: string = t.done.paste): void {
  let ids: readonly string[] = [];
  const isDone = editor.perform(name, (document) => {
    const pasted = pasteNodes(document, text);
    ids = pasted.ids;
    return pasted.document;
  });
  if (isDone) show(editor, ids);
}

export function duplicate(editor: Editor, ids: readonly string[]): void {
  let text: string | null = null;
  const isDone = editor.perform(t.done.duplicate, (document) => {
    text = copyNodes(document, ids);
    return document;
  });
  if (isDone && text !== null) paste(editor, text, t.done.duplicate);
}

export function group(editor: Editor, ids: readonly string[], kind: ContainerKind): void {
  const form = structuredClone(editor.catalogue.components.find((each) => each.name === kind)?.defaults ?? {}) as JsonObject;
  let made = "";
  const isDone = editor.perform(t.done.group, (document) => {
    const grouped = groupNodes(document, ids, kind, form);
    made = grouped.id;
    return grouped.document;
  });
  if (isDone) show(editor, [made]);
}

export function ungroupSelected(editor: Editor, id: string): void {
  const body = [...nodesOf(editor.session.getState().document ?? {}).values()].filter((node) => node.parent === id && !node.label.endsWith("Item")).map((node) => node.id);
  if (editor.perform(t.done.ungroup, (document) => ungroup(document, id))) show(editor, body);
}

export function align(editor: Editor, ids: readonly string[], alignment: Alignment): void {
  editor.perform(t.done.align, (document) => alignNodes(document, ids, alignment));
}

/** Lay out the selection, or everything. */
export async function tidyDrawing(editor: Editor, ids: readonly string[]): Promise<void> {
  const { document } = editor.session.getState();
  if (!document) return;
  const laidOut = await tidy(document, ids);
  const isCurrent = editor.session.getState().document === document; // what was changed meanwhile counts
  if (!isCurrent || !editor.perform(t.done.tidy, () => laidOut)) return;
  editor.notify(t.tidied);
  if (ids.length < 2) editor.camera.current.fit();
}
