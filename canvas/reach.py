"""What can still reach a node: ancestor masks over all edges, and over all but back edges.

Worked out level by level: an edge between nodes of different containers counts between the containers (or nodes) that
stand side by side. A reference to a node that is no ancestor is a soft edge, unless it would close a circle
(engine 4.6, protocol "Ready, and canonical order").
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reach:
    """Masks by node number.

    above: everything from which a path leads to the node, soft edges included.
    above_forward: the same without back edges; these have no circle, so among reached nodes one is always first.
    steps: per node, the targets one step below it (same level), in target order.
    waited_for: per node, those it refers to over a soft edge: it, or what contains it, waits for them.
    """

    above: tuple[int, ...]
    above_forward: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    waited_for: tuple[int, ...]


def reach_of(
    *,
    parents: Sequence[int | None],
    targets: Sequence[Sequence[int]],
    roots: Iterable[int],
    items: frozenset[int],
    mentions: Sequence[Sequence[int]],
) -> Reach:
    """Compute the masks. `roots` are where each level begins, `items` the nodes whose incoming edges end a pass."""
    edges: list[dict[int, None]] = [{} for _ in parents]
    for source, ends in enumerate(targets):
        for end in ends:
            pair = _side_by_side(parents, source, end)
            if pair is not None and end not in items:
                edges[pair[0]][pair[1]] = None
    forward, order = _without_back_edges(edges, roots)
    above = _closure(edges, order)
    above_forward = _closure(forward, order)
    waited_for = [0] * len(parents)
    soft: set[tuple[int, int]] = set()
    for reader, mentioned in enumerate(mentions):
        for writer in mentioned:
            pair = _side_by_side(parents, writer, reader)
            if pair is None:
                continue
            source, end = pair
            if (source, end) in soft:
                waited_for[reader] |= 1 << writer
                continue
            if above[end] >> source & 1 or above[source] >> end & 1:
                continue  # an ancestor already, or it depends on us
            soft.add((source, end))
            _add_edge(above, source, end)
            _add_edge(above_forward, source, end)
            waited_for[reader] |= 1 << writer
    return Reach(tuple(above), tuple(above_forward), tuple(tuple(ends) for ends in edges), tuple(waited_for))


def _side_by_side(parents: Sequence[int | None], source: int, end: int) -> tuple[int, int] | None:
    """The nodes or containers around an edge's ends that share a level; None if one contains the other."""
    around_end: dict[int | None, int] = {}
    node: int | None = end
    while node is not None:
        around_end[parents[node]] = node
        node = parents[node]
    node = source
    while node is not None:
        other = around_end.get(parents[node])
        if other is not None:
            return (node, other) if node != other else None
        node = parents[node]
    return None


def _without_back_edges(edges: Sequence[dict[int, None]], roots: Iterable[int]) -> tuple[list[list[int]], list[int]]:
    """Edges that are no back edges of a depth-first search from the roots, and all nodes in reverse post-order."""
    forward: list[list[int]] = [[] for _ in edges]
    state = [0] * len(edges)  # 0 new, 1 on the path, 2 done
    post: list[int] = []
    for root in (*roots, *range(len(edges))):
        if state[root]:
            continue
        state[root] = 1
        stack = [(root, iter(edges[root]))]
        while stack:
            node, ends = stack[-1]
            for end in ends:
                if state[end] == 1:
                    continue
                forward[node].append(end)
                if state[end] == 0:
                    state[end] = 1
                    stack.append((end, iter(edges[end])))
                    break
            else:
                state[node] = 2
                post.append(node)
                stack.pop()
    return forward, post[::-1]


def _closure(edges: Sequence[Iterable[int]], order: Sequence[int]) -> list[int]:
    above = [0] * len(edges)
    changed = True
    while changed:  # one round without circles, a few with them
        changed = False
        for node in order:
            mask = above[node] | 1 << node
            for end in edges[node]:
                if mask & ~above[end]:
                    above[end] |= mask
                    changed = True
    return above


def _add_edge(above: list[int], source: int, end: int) -> None:
    mask = above[source] | 1 << source
    for node in range(len(above)):
        if node == end or above[node] >> end & 1:
            above[node] |= mask
