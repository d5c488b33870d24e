/** What every part of the editor uses: the draft, commands on it, and the selection. */
import { createContext, use, useSyncExternalStore } from "react";

import type { Catalogue } from "../catalogue/catalogue";
import type { Finding } from "../node-form/contract";
import { groupBy } from "../store/groups";
import type { Document } from "./document/document";
import type { DraftSession, DraftState } from "./session/draft-session";

export type EditorDialog = "publish" | "versions" | "import" | "json" | "run" | { connect: string } | { runNode: string };

export interface Selection {
  nodes: readonly string[];
  edges: readonly string[];
}

export interface FocusedField {
  nodeId: string;
  field: string | null;
}

export interface Camera {
  /** Return the middle of what is in view, on the drawing. */
  center(): { x: number; y: number };
  /** Show the whole drawing. */
  fit(): void;
}

export interface Editor {
  agentId: string;
  session: DraftSession;
  catalogue: Catalogue;
  isReadOnly: boolean;
  select: (selection: Partial<Selection>) => void;
  /** Do a command; what is refused is shown in a sentence. Returns whether it was done. */
  perform: (name: string, command: (document: Document) => Document, key?: string) => boolean;
  /** Show a sentence below the top bar, and announce it. */
  notify: (text: string, isProblem?: boolean) => void;
  openDialog: (dialog: EditorDialog) => void;
  camera: { current: Camera };
  /** Select a node and focus a field of its form. */
  focusField: (place: FocusedField) => void;
}

export const EditorContext = createContext<Editor | null>(null);
export const SelectionContext = createContext<Selection>({ nodes: [], edges: [] });

export function useEditor(): Editor {
  const editor = use(EditorContext);
  if (!editor) throw new Error("a part of the editor is outside of EditorContext");
  return editor;
}

export function useSelection(): Selection {
  return use(SelectionContext);
}

/** Return a part of the draft. The selector must return the same value for the same part. */
export function useDraft<T>(select: (state: DraftState) => T): T {
  const { session } = useEditor();
  return useSyncExternalStore(session.subscribe, () => select(session.getState()));
}

const EMPTY: Document = {};
const shownDocument = (state: DraftState): Document => state.document ?? EMPTY;

export function useDocument(): Document {
  return useDraft(shownDocument);
}

const byNode = new WeakMap<readonly Finding[], ReadonlyMap<string, readonly Finding[]>>();
const NONE: readonly Finding[] = [];

/** Return the findings of a node; the same list as long as the findings are the same. */
export function findingsOf(findings: readonly Finding[], nodeId: string): readonly Finding[] {
  let map = byNode.get(findings);
  if (!map) {
    map = groupBy(findings, (finding) => finding.nodeId ?? "");
    byNode.set(findings, map);
  }
  return map.get(nodeId) ?? NONE;
}

export function countErrors(findings: readonly Finding[]): number {
  return findings.filter((finding) => finding.severity === "error").length;
}
