"""The ways that a run may take from node to node, as the document has them: who is reached, and what goes in circles.

Routing itself looks at the compiled canvas (`canvas/graph/canvas.py`). Here ways keep the field that names them, and
those that no run ever takes are left out: an edge behind a Switch that no branch names, a goto without a method.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from canvas.document.containers import ITEM_OF
from canvas.document.document import Entry, branch_targets, failure_targets

CONTAINER_OF: Mapping[str, str] = {item: container for container, item in ITEM_OF.items()}
ROUTERS = frozenset({"Categorize", "Switch"})


@dataclass(frozen=True, slots=True)
class Path:
    """One way, and the field that says so. `is_certain`: every run that comes to its source takes it."""

    source: str
    field: str
    target: str
    is_taken: bool = True
    is_certain: bool = False


@dataclass(frozen=True, slots=True)
class Cycle:
    """Nodes that lead to each other outside of a Loop, in component order; an endless one has no way out."""

    nodes: tuple[str, ...]
    is_endless: bool


def ways_from(entry: Entry) -> list[Path]:
    """Every way that a node names, those never taken included."""
    branches = list(branch_targets(entry.params))
    is_router = entry.component in ROUTERS
    named = {target for _, target in branches}
    ways = [
        Path(entry.id, "downstream", target, not is_router or target in named, not is_router)
        for target in entry.downstream
    ]
    ways += [Path(entry.id, field, target) for field, target in branches]
    has_method = bool(entry.params.get("exception_method"))
    return ways + [Path(entry.id, field, target, has_method) for field, target in failure_targets(entry.params)]


def items_of(entries: Mapping[str, Entry]) -> dict[str, list[str]]:
    """The item nodes inside of each container, in component order; the first one starts the passes."""
    items: dict[str, list[str]] = {}
    for entry in entries.values():
        container = entries.get(entry.parent) if entry.parent is not None else None
        if container is not None and container.component == CONTAINER_OF.get(entry.component):
            items.setdefault(container.id, []).append(entry.id)
    return items


def unreached(
    entries: Mapping[str, Entry], ways: Mapping[str, Sequence[Path]], items: Mapping[str, Sequence[str]]
) -> set[str]:
    """The nodes that no way leads to from `begin`; without `begin` that is nothing to speak of."""
    if "begin" not in entries:
        return set()
    reached: set[str] = set()
    todo = ["begin"]
    while todo:
        node = todo.pop()
        if node not in reached and node in entries:
            reached.add(node)
            todo += items.get(node, ())
            todo += [way.target for way in ways[node] if way.is_taken]
    return set(entries) - reached


def find_cycles(entries: Mapping[str, Entry], ways: Mapping[str, Sequence[Path]]) -> list[Cycle]:
    """Every circle that neither an item node nor an Answer is part of.

    Ways to an item node end a pass, and an Answer ends a turn: what goes around through them is meant to.
    """
    ends = {entry.id for entry in entries.values() if entry.component in CONTAINER_OF or entry.component == "Answer"}

    def followers(keep: Callable[[Path], bool]) -> dict[str, list[str]]:
        kept = entries.keys() - ends
        return {
            node: [way.target for way in ways[node] if keep(way) and way.target in kept]
            for node in entries
            if node in kept
        }

    endless = {node for knot in _knots(followers(lambda way: way.is_certain)) if len(knot) > 1 for node in knot}
    order = {node: position for position, node in enumerate(entries)}
    return [
        Cycle(tuple(sorted(knot, key=order.__getitem__)), not endless.isdisjoint(knot))
        for knot in _knots(followers(lambda way: way.is_taken))
        if len(knot) > 1
    ]


def _knots(followers: Mapping[str, list[str]]) -> Iterator[list[str]]:
    """Strongly connected components (Tarjan), without recursion, so that long chains do not exhaust the stack."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    held: dict[str, None] = {}
    for root in followers:
        if root in index:
            continue
        trail = [(root, iter(followers[root]))]
        index[root] = low[root] = len(index)
        held[root] = None
        while trail:
            node, rest = trail[-1]
            follower = next(rest, None)
            if follower is None:
                trail.pop()
                if trail:
                    above = trail[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == index[node]:
                    yield _released(held, node)
            elif follower not in index:
                index[follower] = low[follower] = len(index)
                held[follower] = None
                trail.append((follower, iter(followers[follower])))
            elif follower in held:
                low[node] = min(low[node], index[follower])


def _released(held: dict[str, None], node: str) -> list[str]:
    knot: list[str] = []
    while not knot or knot[-1] != node:
        knot.append(held.popitem()[0])
    return knot
