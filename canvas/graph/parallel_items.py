"""Items side by side: when an author asks for it, and when nobody could tell (decisions.md 5).

An Iteration may *overlap* its items if running them ahead of their turn leaves no trace. Then each activation still
stands where it would stand one after another, which is known beforehand, since every pass takes equally many waves;
`canvas/routing/container_routing.py` tells what later items do only when their turn has come. So outputs, order and
failures are those of a run in order; docs/decisions/0010-items-may-overlap.md has the reasoning.

What a component does to the world the pure domain cannot see, so it goes by names, as in `canvas/graph/canvas.py:
KINDS`. A predicate handed in by those who know the components would be at hand in workers only, and every process that
folds must come to the same decision.
"""

from collections.abc import Collection, Mapping
from typing import Any

from canvas.document import references
from canvas.graph.canvas import Canvas, Node, NodeKind

AT_ONCE = 8
"""Items of an Iteration that overlap. Eight model calls hide most of their waiting; more meet a provider's limits."""

WARMUP_ITEMS = 3
"""Items that go one by one before model calls overlap: what is wrong with a prompt or an account shows in the first
few, and then nobody is asked in vain for the others."""

INDEPENDENT = frozenset({"dataoperations", "listoperations", "llm", "generate", "agent", "stringtransform"})
"""Components that a body may hold whose items overlap: such a node leaves nothing but its outputs, sets them anew each
time, and nobody outside sees the order in which it works (a model does not count as somebody)."""

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
"""Components that write no variable and no reference, so that they may work beside an Iteration whose items overlap."""


def requested_concurrency(params: Mapping[str, Any]) -> int:
    """How many items an author wants side by side; 0 if nothing is said, 1 for one after another. `"4"` means 4."""
    wanted = params.get("max_concurrency")
    if isinstance(wanted, str):
        digits = wanted.strip()
        return int(digits[:9]) if digits.isascii() and digits.isdigit() else 0
    if isinstance(wanted, bool) or not isinstance(wanted, int | float):
        return 0
    return int(min(max(wanted, 0), 10**9))


def pipelined_levels(canvas: Canvas, container: Node) -> int:
    """How many waves each pass takes if the container's items may overlap; 0 if somebody could tell."""
    if container.kind is not NodeKind.ITERATION or requested_concurrency(container.params) or AT_ONCE < 2:
        return 0
    waves = _waves(canvas, container)
    if waves is None:
        return 0
    beside = _beside(canvas, container)
    if any(canvas.nodes[number].component.lower() not in WRITES_NOTHING for number in beside):
        return 0
    unsettled = beside | {container.number}
    source = references.parse_reference(str(container.params.get("items_ref") or "")).node
    if source is not None and canvas.numbers.get(source) in unsettled | waves.keys():
        return 0
    if not all(_leaves_no_trace(canvas, canvas.nodes[number], waves, unsettled) for number in waves):
        return 0
    return 1 + max(waves.values())


def sequential_warmup(canvas: Canvas, container: Node) -> int:
    """How many items of a body go one by one before they overlap."""
    return WARMUP_ITEMS if any(node.kind is NodeKind.MODEL for node in canvas.children(container.number)) else 0


def _waves(canvas: Canvas, container: Node) -> dict[int, int] | None:
    """The wave of each node of the body, counted from the item node; None if not every one runs in every pass."""
    body = canvas.children(container.number)
    inside = sum(node.bit for node in body)
    above = canvas.reach.above
    item = canvas.items[container.number]
    waves = {item: 0}
    for node in sorted(body, key=lambda node: (above[node.number] & inside).bit_count()):
        is_straight = node.targets == node.downstream and not canvas.may_repeat(node.number)
        if node.number not in waves or not is_straight:
            return None
        for target in node.downstream:
            if not inside >> target & 1:
                return None
            if target != item:
                waves[target] = max(waves.get(target, 0), waves[node.number] + 1)
    return waves


def _leaves_no_trace(canvas: Canvas, node: Node, waves: Mapping[int, int], unsettled: Collection[int]) -> bool:
    """Whether a node of the body does in every pass what it would do in any other, and nothing that others notice."""
    if node.failure.default or node.failure.leads_elsewhere or canvas.speaking & node.bit:
        return False
    if not waves[node.number]:
        return True  # the item node
    if node.component.lower() not in INDEPENDENT or node.params.get("tools") or node.params.get("mcp"):
        return False
    read = {canvas.numbers[name] for name, _ in references.names_in(node.params).nodes if name in canvas.numbers}
    for number in read & waves.keys():
        if waves[number] >= waves[node.number] or not canvas.reach.above[node.number] >> number & 1:
            return False  # it would read what the pass before has left
    return read.isdisjoint(unsettled)


def _beside(canvas: Canvas, container: Node) -> set[int]:
    """The nodes outside of a container that may work while its body runs."""
    above = canvas.reach.above
    found: set[int] = set()
    inner = container.number
    for around in (*canvas.containers_of(container.number), None):
        level = {node.number for node in canvas.nodes if node.parent == around and node.number != inner}
        found |= {number for number in level if not (above[inner] >> number | above[number] >> inner) & 1}
        inner = around if around is not None else inner
    return found | {node.number for node in canvas.nodes if not found.isdisjoint(canvas.containers_of(node.number))}
