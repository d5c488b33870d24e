"""Concurrent items of an Iteration: parallel ones, if the author asks for them, and pipelined ones, if unobservable.

The items of an Iteration are *pipelined* if running them ahead of their order cannot be observed. Each activation has
the order key of a sequential run, which is known beforehand, since every pass takes the same number of levels.
`canvas/routing/container_routing.py` defers the events of later items. So outputs, order and failures are those of a
sequential run; docs/decisions/0010-items-may-overlap.md has the reasoning.

The canvas package does not know what effects a component has, so it goes by component names, as in
`canvas/graph/canvas.py: KINDS`. A predicate of the components package would be available in workers only, and every
process that advances runs must come to the same decision.
"""

from collections.abc import Collection, Mapping
from typing import Any

from canvas.document import references
from canvas.graph.canvas import Canvas, Node, NodeKind

AT_ONCE = 8
"""How many pipelined items run at once. Eight model calls hide most of the waiting; more reach a vendor's limits."""

WARMUP_ITEMS = 3
"""How many items with model calls run one by one before items are pipelined: a wrong prompt or account fails in the
first few, and no calls are made for the others."""

INDEPENDENT = frozenset({"dataoperations", "listoperations", "llm", "generate", "agent", "stringtransform"})
"""Components allowed in the body of pipelined items: such a node writes nothing but its outputs, sets all of them each
time, and the order in which its calls are made cannot be observed from outside (model calls do not count)."""

WRITES_NOTHING = INDEPENDENT | {
    "begin",
    "message",
    "switch",
    "categorize",
    "userfillup",
    "fillup",
    "variableaggregator",
    "iteration",
    "iterationitem",
    "loop",
    "loopitem",
    "exitloop",
}
"""Components that write no variable and no reference, so they may run beside an Iteration with pipelined items."""


def requested_concurrency(params: Mapping[str, Any]) -> int:
    """Return `max_concurrency`: 0 if it is not set, 1 for sequential items. A text such as `"4"` means 4."""
    value = params.get("max_concurrency")
    if isinstance(value, str):
        digits = value.strip()
        return int(digits[:9]) if digits.isascii() and digits.isdigit() else 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(min(max(value, 0), 10**9))


def pipelined_levels(canvas: Canvas, container: Node) -> int:
    """Return how many levels each pass takes if the container's items may be pipelined; 0 if they may not."""
    if container.kind is not NodeKind.ITERATION or requested_concurrency(container.params) or AT_ONCE < 2:
        return 0
    levels = _levels_of_body(canvas, container)
    if levels is None:
        return 0
    beside = _concurrent_nodes(canvas, container)
    if any(canvas.nodes[number].component.lower() not in WRITES_NOTHING for number in beside):
        return 0
    unsettled = beside | {container.number}
    source = references.parse_reference(str(container.params.get("items_ref") or "")).node
    if source is not None and canvas.numbers.get(source) in unsettled | levels.keys():
        return 0
    if not all(_is_independent(canvas, canvas.nodes[number], levels, unsettled) for number in levels):
        return 0
    return 1 + max(levels.values())


def sequential_warmup(canvas: Canvas, container: Node) -> int:
    """Return how many items of a body run one by one before they are pipelined."""
    return WARMUP_ITEMS if any(node.kind is NodeKind.MODEL for node in canvas.children(container.number)) else 0


def _levels_of_body(canvas: Canvas, container: Node) -> dict[int, int] | None:
    """Return the level of each node of the body, from the item node on; None if not every node runs in every pass."""
    body = canvas.children(container.number)
    inside = sum(node.bit for node in body)
    above = canvas.reachability.above
    item = canvas.items[container.number]
    levels = {item: 0}
    for node in sorted(body, key=lambda node: (above[node.number] & inside).bit_count()):
        is_straight = node.targets == node.downstream and not canvas.may_repeat(node.number)
        if node.number not in levels or not is_straight:
            return None
        for target in node.downstream:
            if not inside >> target & 1:
                return None
            if target != item:
                levels[target] = max(levels.get(target, 0), levels[node.number] + 1)
    return levels


def _is_independent(canvas: Canvas, node: Node, levels: Mapping[int, int], unsettled: Collection[int]) -> bool:
    """Whether a node of the body works the same in any order of the passes, and affects nothing outside of its pass."""
    if node.failure.default or node.failure.has_goto or canvas.streaming_models & node.bit:
        return False
    if not levels[node.number]:
        return True  # the item node
    if node.component.lower() not in INDEPENDENT or node.params.get("tools") or node.params.get("mcp"):
        return False
    read = {canvas.numbers[name] for name, _ in references.names_in(node.params).nodes if name in canvas.numbers}
    for number in read & levels.keys():
        if levels[number] >= levels[node.number] or not canvas.reachability.above[node.number] >> number & 1:
            return False  # it would read a value of the previous pass
    return read.isdisjoint(unsettled)


def _concurrent_nodes(canvas: Canvas, container: Node) -> set[int]:
    """Return the nodes outside of a container that may run while its body runs."""
    above = canvas.reachability.above
    found: set[int] = set()
    inner = container.number
    for around in (*canvas.containers_of(container.number), None):
        siblings = {node.number for node in canvas.nodes if node.parent == around and node.number != inner}
        found |= {number for number in siblings if not (above[inner] >> number | above[number] >> inner) & 1}
        inner = around if around is not None else inner
    return found | {node.number for node in canvas.nodes if not found.isdisjoint(canvas.containers_of(node.number))}
