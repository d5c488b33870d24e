"""Write what validation accepts in the recorded documents: `python -m tests.accepted_references`.

The editor lists the references that a node can have (`viewer/src/node-form/references.ts`). Its test compares the list
with `viewer/tests/accepted-references.json`, which this module makes out of the API's own validation.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.webhooks.payload import SECTIONS
from canvas.document import parsing, references
from canvas.document.document import Document, Entry
from canvas.graph.canvas import compile_canvas
from canvas.validation import check, document_warnings, order_warnings
from canvas.validation.order_warnings import Order
from canvas.validation.paths import find_unreached, items_of, paths_from
from canvas.validation.reference_scan import ReferenceUse, references_of
from components.checks.known_outputs import outputs_of
from components.forms.catalogue import catalogue

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (ROOT / "tests" / "recordings" / "ragflow", ROOT / "examples")
PATH = ROOT / "viewer" / "tests" / "accepted-references.json"
RENEW = "run `python -m tests.accepted_references`"


def accepted_references() -> dict[str, Any]:
    """Return the outputs of components, and per document and node the references that validation accepts and uses."""
    outputs = {each["name"]: each["outputs"] for each in catalogue()["components"]}
    documents = {
        str(path.relative_to(ROOT)): {"accepted": _accepted(document), "used": _used(document)}
        for path in sorted(path for folder in DOCUMENTS for path in folder.rglob("*.json"))
        for document in [parsing.parse(path.read_text())]
    }
    return {"outputs": outputs, "documents": documents}


def accepted_text() -> str:
    """Return the file's text: short, since a list is that of the node named in its place where both are equal."""
    found = accepted_references()
    for document in found["documents"].values():
        seen: dict[str, str] = {}
        accepted = document["accepted"]
        for node, listed in accepted.items():
            first = seen.setdefault(json.dumps(listed), node)
            if first != node:
                accepted[node] = first
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _accepted(document: Document) -> dict[str, list[str]]:
    ways = {entry.id: paths_from(entry) for entry in document.entries.values()}
    never = find_unreached(document.entries, ways, items_of(document.entries))
    order = Order.of(compile_canvas(document), ways, never)
    return {
        entry.id: sorted({ref for ref in _candidates(document) if not any(_refusals(document, order, entry, ref))})
        for entry in document.entries.values()
    }


def _candidates(document: Document) -> Iterator[str]:
    """Yield the references to outputs that a node has or declares, to its error, and to globals."""
    for entry in document.entries.values():
        declared = entry.params.get("outputs")
        names = outputs_of(entry)
        if entry.component == "Begin" and entry.params.get("mode") == "Webhook":
            names = frozenset(SECTIONS)
        for name in {*(names or (declared if isinstance(declared, dict) else ())), "_ERROR"}:
            if not _is_of_old_syntax(document, entry, name):
                yield f"{entry.id}@{name}"
    yield from (*document.globals, *document_warnings.SET_BY_A_RUN, *references.ALIASES)


def _is_of_old_syntax(document: Document, entry: Entry, name: str) -> bool:
    """Whether an output stands for `{iteration:0@generate:1}`, which old documents write without declaring it."""
    written = document.raw["components"][entry.id]["obj"]["params"].get("outputs") or {}
    return entry.component == "Iteration" and name != "_ERROR" and name not in written


def _refusals(document: Document, order: Order, entry: Entry, expression: str) -> Iterator[object]:
    """Yield why validation refuses a reference in a text of a node."""
    found = references.find(f"{{{expression}}}", with_aliases=True)
    if [each.expression for each in found] != [expression]:
        yield "not a reference"
        return
    use = ReferenceUse("text", found[0].ref)
    yield from document_warnings.reference_warnings(document, entry, [use], outputs_of)
    uses = {each.id: [use] if each.id == entry.id else [] for each in document.entries.values()}
    yield from order_warnings.unset_read_warnings(document, order, uses, frozenset())


def _used(document: Document) -> dict[str, list[str]]:
    """Return the roots of the references that authors wrote and validation does not refuse."""
    findings, warnings = check.check(document, outputs_of)
    refused = {(each.node, each.field) for each in (*findings, *warnings)}
    used: dict[str, list[str]] = {}
    for entry in document.entries.values():
        for use in references_of(entry):
            root = f"{use.ref.node}@{use.ref.root}" if use.ref.node else use.ref.root
            source = document.entries.get(use.ref.node or "")
            if source is not None and _is_of_old_syntax(document, source, use.ref.root):
                continue
            if use.ref.root.startswith("_") and use.ref.root != "_ERROR":
                continue  # parsing adds it to old components
            if (entry.id, use.field) not in refused and root not in used.setdefault(entry.id, []):
                used[entry.id].append(root)
    return {node: listed for node, listed in used.items() if listed}


if __name__ == "__main__":
    PATH.write_text(accepted_text())
