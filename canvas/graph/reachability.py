"""Reachability: per node, the mask of its ancestors over all edges, and over all but back edges.

It is computed per container: an edge between nodes of different containers counts as one between the containers (or
nodes) that share a parent. A reference to a node that is not an ancestor is a soft edge, unless it would close a cycle
(docs/protocol.md#ready-and-canonical-order).
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reachability:
    """Masks by node number.

    above: all nodes from which a path leads to the node, soft edges included.
    above_forward: the same without back edges; these edges have no cycle, so among reached nodes one is always first.
    steps: per node, its targets with the same parent, in target order.
    waited_for: per node, the nodes it refers to over a soft edge: it, or a container around it, waits for them.
    back: the back edges, as pairs of nodes with one parent; an edge from a body to its own container is one as well.
    entangled: per loop head (a node that a back edge leads to), all nodes that share a descendant with it: its next
        round waits until none of these is active. 0 for other nodes.
    """

    above: tuple[int, ...]
    above_forward: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    soft_dependencies: tuple[int, ...]
    back: frozenset[tuple[int, int]]
    descendant_sharers: tuple[int, ...]


def compute_reachability(
    *,
    parents: Sequence[int | None],
    targets: Sequence[Sequence[int]],
    roots: Iterable[int],
    items: frozenset[int],
    mentions: Sequence[Sequence[int]],
) -> Reachability:
    """Compute the masks. `roots`: the first nodes of the canvas and each body; `items`: the item nodes."""
    edges: list[dict[int, None]] = [{} for _ in parents]
    into_itself: set[tuple[int, int]] = set()
    for source, ends in enumerate(targets):
        for end in ends:
            pair = _siblings_around(parents, source, end)
            if pair is not None and end not in items:
                edges[pair[0]][pair[1]] = None
            elif pair is None and end not in items and _contains(parents, end, source):
                into_itself.add((end, end))
    forward, order, back = _without_back_edges(edges, roots)
    above = _closure(edges, order)
    for node, _ in into_itself:
        above[node] |= 1 << node
    above_forward = _closure(forward, order)
    waited_for = [0] * len(parents)
    soft: set[tuple[int, int]] = set()
    closures = (_GrowingMasks(above), _GrowingMasks(above_forward))
    for reader, mentioned in enumerate(mentions):
        for writer in mentioned:
            pair = _siblings_around(parents, writer, reader)
            if pair is None:
                continue
            source, end = pair
            if pair not in soft:
                if above[end] >> source & 1 or above[source] >> end & 1:
                    continue  # it is already an ancestor, or it depends on the reader
                soft.add(pair)
                for closure in closures:
                    closure.add(source, end)
            waited_for[reader] |= 1 << writer
    below = [[*ends] for ends in edges]
    for source, end in sorted(soft):
        below[source].append(end)
    back |= into_itself
    return Reachability(
        above=tuple(above),
        above_forward=tuple(above_forward),
        steps=tuple(tuple(ends) for ends in edges),
        soft_dependencies=tuple(waited_for),
        back=frozenset(back),
        descendant_sharers=_compute_descendant_sharers(above, below, {head for _, head in back}),
    )


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers in a mask, smallest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _contains(parents: Sequence[int | None], container: int, node: int | None) -> bool:
    """Whether a node is the container or is inside of it."""
    while node is not None and node != container:
        node = parents[node]
    return node == container


def _compute_descendant_sharers(
    above: Sequence[int], below: Sequence[Sequence[int]], heads: Collection[int]
) -> tuple[int, ...]:
    """Return, per loop head, the mask of all nodes that share a descendant with it, itself included; 0 for others."""
    if not heads:
        return (0,) * len(above)
    shared = [mask | 1 << node for node, mask in enumerate(above)]
    _, order, _ = _without_back_edges(below, ())
    for circle in reversed(_strong_components(below, order)):
        mask = 0
        for node in circle:
            mask |= shared[node]
            for end in below[node]:
                mask |= shared[end]
        for node in circle:
            shared[node] = mask
    return tuple(mask if node in heads else 0 for node, mask in enumerate(shared))


def _siblings_around(parents: Sequence[int | None], source: int, end: int) -> tuple[int, int] | None:
    """Return the nodes or containers around an edge's ends that share a parent; None if one contains the other."""
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


def _without_back_edges(
    edges: Sequence[Iterable[int]], roots: Iterable[int]
) -> tuple[list[list[int]], list[int], set[tuple[int, int]]]:
    """Search depth first from the roots. Return the edges without back edges, all nodes in reverse post-order, and the
    back edges."""
    back: set[tuple[int, int]] = set()
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
                    back.add((node, end))
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
    return forward, post[::-1], back


def _closure(edges: Sequence[Iterable[int]], order: Sequence[int]) -> list[int]:
    """Return, per node, the mask of all nodes with a path to it. `order` is a reverse post-order of these edges."""
    above = [0] * len(edges)
    for circle in _strong_components(edges, order):
        mask = 0
        for node in circle:
            mask |= above[node] | (1 << node if len(circle) > 1 else 0)
        for node in circle:
            above[node] = mask
            for end in edges[node]:
                above[end] |= mask | 1 << node
    return above


def _strong_components(edges: Sequence[Iterable[int]], order: Sequence[int]) -> list[list[int]]:
    """Return the strongly connected components, most of them single nodes; a component precedes those it leads to."""
    before: list[list[int]] = [[] for _ in edges]
    for source, ends in enumerate(edges):
        for end in ends:
            before[end].append(source)
    found: list[list[int]] = []
    is_new = [True] * len(before)
    for first in order:
        circle: list[int] = []
        waiting = [first] if is_new[first] else []
        is_new[first] = False
        while waiting:
            circle.append(waiting.pop())
            for node in before[circle[-1]]:
                if is_new[node]:
                    is_new[node] = False
                    waiting.append(node)
        if circle:
            found.append(circle)
    return found


class _GrowingMasks:
    """Ancestor masks to which edges are added. An edge costs only what it changes: the pairs it newly connects."""

    def __init__(self, above: list[int]) -> None:
        self._above = above
        self._below: list[int] | None = None  # descendant masks, computed when the first edge is added

    def add(self, source: int, end: int) -> None:
        """Add an edge; the masks passed to the constructor change in place."""
        if self._below is None:
            self._below = _transpose(self._above)
        above, below = self._above, self._below
        over, under = above[source] | 1 << source, below[end] | 1 << end
        newly_under, newly_over = under & ~below[source], over & ~above[end]
        for node in bits(newly_under):
            above[node] |= over
        for node in bits(newly_over):
            below[node] |= under


def _transpose(masks: Sequence[int]) -> list[int]:
    turned = [0] * len(masks)
    for node, mask in enumerate(masks):
        for other in bits(mask):
            turned[other] |= 1 << node
    return turned
