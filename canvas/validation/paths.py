"""Paths between nodes as written in a document: which nodes are reachable, and which form cycles.

Routing itself uses the compiled canvas (`canvas/graph/canvas.py`). Here a path knows the field that it is written in,
and whether any run can follow it: no run follows an edge after a Switch that no branch names, or a goto without a
method.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from canvas.document.containers import ITEM_OF
from canvas.document.document import Entry, branch_targets, failure_targets

CONTAINER_OF: Mapping[str, str] = {item: container for container, item in ITEM_OF.items()}
ROUTERS = frozenset({"Categorize", "Switch"})


@dataclass(frozen=True, slots=True)
class Path:
    """A path from node to node. `is_taken`: a run can follow it; `is_certain`: every run that reaches `source` does."""

    source: str
    field: str
    target: str
    is_taken: bool = True
    is_certain: bool = False


@dataclass(frozen=True, slots=True)
class Cycle:
    """Nodes that lead to each other outside of a Loop, in component order; an endless cycle has no exit."""

    nodes: tuple[str, ...]
    is_endless: bool


def paths_from(entry: Entry) -> list[Path]:
    """Return every path that a node names, including those that no run can follow."""
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
    """Return the item nodes in each container, in component order; the first one starts the passes."""
    items: dict[str, list[str]] = {}
    for entry in entries.values():
        container = entries.get(entry.parent) if entry.parent is not None else None
        if container is not None and container.component == CONTAINER_OF.get(entry.component):
            items.setdefault(container.id, []).append(entry.id)
    return items


def find_unreached(
    entries: Mapping[str, Entry], ways: Mapping[str, Sequence[Path]], items: Mapping[str, Sequence[str]]
) -> set[str]:
    """Return the nodes that no path from `begin` leads to; none if there is no `begin`."""
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
    """Return every cycle without an item node or Answer.

    A path to an item node ends a pass, and an Answer waits for the user: cycles through them are intended.
    """
    ends = {entry.id for entry in entries.values() if entry.component in CONTAINER_OF or entry.component == "Answer"}

    def followers(keep: Callable[[Path], bool]) -> dict[str, list[str]]:
        inner = entries.keys() - ends
        return {
            node: [way.target for way in ways[node] if keep(way) and way.target in inner]
            for node in entries
            if node in inner
        }

    certain = _strong_components(followers(lambda way: way.is_certain))
    endless = {node for nodes in certain if len(nodes) > 1 for node in nodes}
    order = {node: position for position, node in enumerate(entries)}
    return [
        Cycle(tuple(sorted(nodes, key=order.__getitem__)), not endless.isdisjoint(nodes))
        for nodes in _strong_components(followers(lambda way: way.is_taken))
        if len(nodes) > 1
    ]


def _strong_components(followers: Mapping[str, list[str]]) -> Iterator[list[str]]:
    """Yield the strongly connected components (Tarjan), without recursion, so long chains do not exhaust the stack."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: dict[str, None] = {}
    for root in followers:
        if root in index:
            continue
        trail = [(root, iter(followers[root]))]
        index[root] = low[root] = len(index)
        stack[root] = None
        while trail:
            node, rest = trail[-1]
            follower = next(rest, None)
            if follower is None:
                trail.pop()
                if trail:
                    above = trail[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == index[node]:
                    yield _pop_component(stack, node)
            elif follower not in index:
                index[follower] = low[follower] = len(index)
                stack[follower] = None
                trail.append((follower, iter(followers[follower])))
            elif follower in stack:
                low[node] = min(low[node], index[follower])


def _pop_component(stack: dict[str, None], node: str) -> list[str]:
    component: list[str] = []
    while not component or component[-1] != node:
        component.append(stack.popitem()[0])
    return component
