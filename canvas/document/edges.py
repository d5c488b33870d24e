"""Where a node's parameters may send a run: branches of routers, and the way out after a failure."""

from collections.abc import Iterator, Mapping
from typing import Any


def choices(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(field, target id) of every branch that a Switch or Categorize names, in order."""
    groups: Any = params.get("conditions")
    for position, group in enumerate(groups) if isinstance(groups, list | tuple) else ():
        if isinstance(group, Mapping):
            yield from _named(f"conditions[{position}].to", group.get("to"))
    yield from _named("end_cpn_ids", params.get("end_cpn_ids"))
    categories = params.get("category_description")
    for name, category in categories.items() if isinstance(categories, Mapping) else ():
        if isinstance(category, Mapping):
            yield from _named(f"category_description.{name}.to", category.get("to"))


def exits(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(field, target id) of every way that a failure may take."""
    yield from _named("exception_goto", params.get("exception_goto"))


def _named(field: str, value: Any) -> Iterator[tuple[str, str]]:
    targets = [value] if isinstance(value, str) else value
    for target in targets if isinstance(targets, list | tuple) else ():
        if isinstance(target, str) and target:
            yield field, target
