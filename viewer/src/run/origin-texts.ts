/** Where a copy of a run comes from, in words. */
import { parsePlace } from "../fork/places";
import { texts } from "../texts";
import { visibleName } from "../ui/visible-text";

const t = texts.copies;

/** Return the end of an id: ids of runs of one day begin alike. */
export function shortId(id: string): string {
  return `…${id.slice(-8)}`;
}

type Names = ReadonlyMap<string, string>;

/** Return the place of a step in words: "reply, item 4". */
export function placeText(place: string, names: Names): string {
  const parsed = parsePlace(place);
  if (!parsed) return t.aStep;
  const items = parsed.items.map((item) => texts.time.item(item)).join(" › ");
  return visibleName(t.step(names.get(parsed.nodeId) ?? parsed.nodeId, items), 100);
}

/** Return an edit of the API's list (`params.LLM:Reply.sys_prompt`) in words: "sys_prompt of reply". */
export function editText(edit: string, names: Names): string {
  const [, kind = "", rest = ""] = /^(params|outputs|variables)\.(.+)$/.exec(edit) ?? [];
  if (kind === "variables") return visibleName(t.variable(rest), 100);
  if (!kind) return visibleName(t.edits[edit] ?? edit, 100);
  const dot = endOfOwner(rest, names);
  const [owner, name] = [rest.slice(0, dot), rest.slice(dot + 1)];
  const shown = placeText(owner, names);
  return visibleName(kind === "params" ? t.editOf(name, shown) : t.editedOutput(name, shown), 160);
}

/** Return where the name of a node, which may contain dots, ends. */
function endOfOwner(text: string, names: Names): number {
  const node = [...names.keys()].filter((id) => text.startsWith(`${id}.`)).sort((a, b) => b.length - a.length)[0];
  if (node !== undefined) return node.length;
  const item = text.indexOf("].");
  return item >= 0 ? item + 1 : text.indexOf(".");
}
