"""Read from a document which nodes wait for which others, as far as this shows in the order of events.

This does not use the executor's own compiler, so that a defect there cannot hide here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_ITEMS = frozenset({"iterationitem", "loopitem"})


@dataclass(frozen=True, slots=True)
class Dependencies:
    """`before[n]`: nodes that n waits for when they run first. `inside[c]`: the members of container c."""

    before: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    inside: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])


def dependencies_of(document: Any) -> Dependencies:
    """Return edges of every kind: downstream, choices, error routes, and those into, inside and out of containers."""
    components = document.get("components") if isinstance(document, Mapping) else None
    entries = {str(key): entry for key, entry in components.items()} if isinstance(components, Mapping) else {}
    before: dict[str, set[str]] = {}
    inside: dict[str, set[str]] = {}
    for node, entry in entries.items():
        for target in _targets(entry):
            before.setdefault(target, set()).add(node)
        parent = _parent(entry)
        if parent is not None:
            inside.setdefault(parent, set()).add(node)
    for container, members in inside.items():
        items = {node for node in members if _component(entries[node]).lower() in _ITEMS}
        exits = {node for node in members if _component(entries[node]).lower() == "exitloop"}
        for item in items:  # an item begins when the container opens, or when the previous item is over
            before.setdefault(item, set()).update({container}, members - {item})
        for successor in _texts(_member(entries.get(container), "downstream")):
            before.setdefault(successor, set()).update(items | exits)
    return Dependencies(
        {node: frozenset(sources - {node}) for node, sources in before.items()},
        {container: frozenset(members) for container, members in inside.items()},
    )


def _targets(entry: Any) -> Iterator[str]:
    params = _member(_member(entry, "obj"), "params") or _member(entry, "params")
    yield from _texts(_member(entry, "downstream"))
    yield from _texts(_member(_member(entry, "obj"), "downstream"))
    yield from _texts(_member(params, "exception_goto"))
    yield from _texts(_member(params, "end_cpn_ids"))
    for condition in _items(_member(params, "conditions")):
        yield from _texts(_member(condition, "to"))
    categories = _member(params, "category_description")
    for category in categories.values() if isinstance(categories, Mapping) else ():
        yield from _texts(_member(category, "to"))


def _component(entry: Any) -> str:
    return str(_member(_member(entry, "obj"), "component_name") or _member(entry, "name") or "")


def _parent(entry: Any) -> str | None:
    parent = _member(entry, "parent_id")
    return parent if isinstance(parent, str) and parent else None


def _member(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value:
        yield value
    for item in _items(value):
        if isinstance(item, str):
            yield item
