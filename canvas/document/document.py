"""Document: a canvas as its author stored it. It has entries by id, and the state that is stored with the document.

`canvas/document/parsing.py` converts upstream-shaped JSON to a Document and back; `canvas/graph/canvas.py` compiles a
Document to a Canvas.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"


@dataclass(frozen=True, slots=True)
class Entry:
    """One node of the document, with current names and params in the main shape; other params are as written."""

    id: str
    component: str  # the class name in its canonical spelling if it is known ("LLM"), else as written
    params: Mapping[str, Any]
    downstream: tuple[str, ...] = ()  # as written, duplicates removed, unknown ids kept for validation to report
    upstream: tuple[str, ...] = ()
    parent: str | None = None
    name: str = ""  # the display name: graph.nodes[].data.name, "" if unknown


BEGIN = "begin"  # the id of the node where runs begin


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed canvas. `raw` is the upstream-shaped object with current names, unknown keys included."""

    entries: Mapping[str, Entry]  # in component order
    raw: Mapping[str, Any]
    globals: Mapping[str, Any] = field(default_factory=dict)  # sys.* (all six present) and env.*
    variables: Mapping[str, Any] = field(default_factory=dict)  # name -> {name, type, value, description}
    history: tuple[Any, ...] = ()  # [role, content] pairs
    retrieval: tuple[Any, ...] = ()
    memory: tuple[Any, ...] = ()

    @property
    def begin_params(self) -> Mapping[str, Any]:
        """The params of the node with the id `begin`, where runs begin; empty if there is none."""
        begin = self.entries.get(BEGIN)
        return begin.params if begin is not None else {}


def branch_targets(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (field, target id) of each branch of a Switch or Categorize, in order."""
    groups: Any = params.get("conditions")
    for position, group in enumerate(groups) if isinstance(groups, list | tuple) else ():
        if isinstance(group, Mapping):
            yield from _targets_in_field(f"conditions[{position}].to", group.get("to"))
    yield from _targets_in_field("end_cpn_ids", params.get("end_cpn_ids"))
    categories = params.get("category_description")
    for name, category in categories.items() if isinstance(categories, Mapping) else ():
        if isinstance(category, Mapping):
            yield from _targets_in_field(f"category_description.{name}.to", category.get("to"))


def failure_targets(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (field, target id) of each node that a failure may lead to."""
    yield from _targets_in_field("exception_goto", params.get("exception_goto"))


def _targets_in_field(field: str, value: Any) -> Iterator[tuple[str, str]]:
    targets = [value] if isinstance(value, str) else value
    for target in targets if isinstance(targets, list | tuple) else ():
        if isinstance(target, str) and target:
            yield field, target
