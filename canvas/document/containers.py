"""Containers and their bodies: adds a missing item node, which starts each pass, to every Iteration and Loop.

Some documents have no item node but refer to one. The added item node gets the id that the body refers to, and leads to
every node of the body that no other node of the body leads to.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from canvas.document import references
from canvas.document.document import Entry, branch_targets, failure_targets
from canvas.errors import InvalidCanvas

MAX_DEPTH = 32
ITEM_OF: Mapping[str, str] = {"Iteration": "IterationItem", "Loop": "LoopItem"}


def bodies(entries: Mapping[str, Entry]) -> dict[str, list[str]]:
    """Return the ids of the nodes in each container's body, in component order.

    Raises InvalidCanvas if containers are nested too deep, or contain themselves.
    """
    inside: dict[str, list[str]] = {}
    for entry in entries.values():
        _check_depth(entries, entry)
        if entry.parent is not None:
            inside.setdefault(entry.parent, []).append(entry.id)
    return inside


def add_item_nodes(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the entries with an item node after every container that has none."""
    inside = bodies(entries)
    completed: dict[str, Entry] = {}
    used_ids = set(entries)
    for entry in entries.values():
        body = [entries[member] for member in inside.get(entry.id, ())]
        item_class = ITEM_OF.get(entry.component)
        if item_class is None or any(member.component == item_class for member in body):
            completed[entry.id] = entry
            continue
        item = _item(entry, item_class, body, used_ids)
        used_ids.add(item.id)
        members = {member.id for member in body}
        outer = tuple(target for target in entry.downstream if target not in members)
        completed[entry.id] = replace(entry, downstream=outer)
        completed[item.id] = item
    return completed


def _check_depth(entries: Mapping[str, Entry], entry: Entry) -> None:
    parent = entry.parent
    for _ in range(MAX_DEPTH):
        if parent is None or parent not in entries:
            return
        parent = entries[parent].parent
    raise InvalidCanvas(
        f'Node "{entry.name}" ({entry.id}): it is inside of itself, or nested deeper than {MAX_DEPTH} levels.',
        node=entry.id,
        field="parent_id",
    )


def _item(container: Entry, item_class: str, body: Sequence[Entry], used_ids: Iterable[str]) -> Entry:
    inside = {member.id for member in body}
    followers = {
        target for member in body for target in _targets_of(member) if target in inside and target != member.id
    }
    starts = tuple(member.id for member in body if member.id not in followers)
    return Entry(
        id=_item_id(container, item_class, body, used_ids),
        component=item_class,
        params={},
        downstream=starts or tuple(member.id for member in body[:1]),
        parent=container.id,
    )


def _targets_of(member: Entry) -> list[str]:
    return [
        *member.downstream,
        *(target for _, target in (*branch_targets(member.params), *failure_targets(member.params))),
    ]


def _item_id(container: Entry, item_class: str, body: Sequence[Entry], used_ids: Iterable[str]) -> str:
    """Return the first unknown item id that the container or its body refers to, else one built from its own id."""
    for entry in (container, *body):
        for text in references.texts_in(dict(entry.params)):
            refs = [found.ref for found in references.find(text)]
            if bare := references.parse(text):
                refs.append(bare)
            for ref in refs:
                if ref.node and ref.node.startswith(f"{item_class}:") and ref.node not in used_ids:
                    return ref.node
    _, colon, rest = container.id.partition(":")
    made = f"{item_class}:{rest if colon else container.id}"
    while made in used_ids:
        made += "_"
    return made
