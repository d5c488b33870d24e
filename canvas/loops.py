"""Iteration and Loop bodies: the next item or round, leaving early, and the end of a container (engine 4.4).

A container that reports `Expanded` stays alive while its body runs. Each pass of the body is a scope, begun by a visit
of the item node, which either starts the body (`Repeated`) or ends the container (`Left`). One after another there is
one pass at a time and waves go on counting; side by side every item has a region of its own, and a last visit, in the
container's own region, collects.

A pass goes on until nothing in it is alive, whatever an ExitLoop has reported: so what runs does not depend on who is
faster.
"""

from uuid import UUID

from canvas import speech
from canvas.graph import Kind, Node
from canvas.outcome import Expanded
from canvas.place import Place
from canvas.plan import Plan
from canvas.state import Container, Report, Scope, ScopeKey, Status


def open_container(plan: Plan, report: Report, outcome: Expanded) -> None:
    """A container's body begins. The counters start anew at each entry (components E7)."""
    node = plan.canvas.node(report.node_id)
    scope = plan.scope(report.scope)
    container = Container(report.activation, report.ordinal, report.place, outcome.count, outcome.concurrency)
    scope.containers[node.number] = container
    plan.decision.moved[report.activation] = Status.OPEN
    _go_on(plan, node, scope, container, item=0, wave=report.place.wave + 1)


def item_left(plan: Plan, report: Report) -> None:
    """An item visit found nothing more to do, or an ExitLoop was reached."""
    node = plan.canvas.node(report.node_id)
    scope = plan.scope(report.scope)
    plan.end(report, scope)
    plan.emit_finished(report.activation, report.node_id, report.error)
    if node.kind.is_item:
        plan.close_scope(scope.key)
        _end_container(plan, report.scope, report.place, report.activation)
    elif scope.leaving is None or scope.leaving < report.place:
        scope.leaving, scope.left_by = report.place, report.activation


def pass_ended(plan: Plan, scope: Scope) -> None:
    """Nothing is alive in a pass any more: go on with the next item, or end the container."""
    outer = plan.scope(scope.key[:-1])
    container_id, _, item = scope.key[-1]
    node = plan.canvas.node(container_id)
    container = outer.containers[node.number]
    if scope.counted_still:
        container.still -= 1
    speech.forget(plan, scope.key)
    plan.close_scope(scope.key)
    container.open -= 1
    if scope.region != outer.region:
        container.waves += scope.last_wave + 1
    else:
        container.waves = scope.last_wave - container.place.wave
        outer.last_wave = max(outer.last_wave, scope.last_wave)
    if container.side_by_side:
        _go_on(plan, node, outer, container, item=container.next, wave=0)
    elif plan.is_too_late(Place(scope.last_wave + 1, region=scope.region)):
        return  # the run ends, and the container with it
    elif scope.leaving is not None:
        _end_container(plan, scope.key, scope.leaving, scope.left_by)
    elif scope.escaped:
        _leave(plan, node, outer, container)
    else:
        _go_on(plan, node, outer, container, item=item + 1, wave=scope.last_wave + 1)


def item_failed(plan: Plan, key: ScopeKey, place: Place, error: str) -> bool:
    """A failure inside side-by-side items belongs to their container; whether there is such a container.

    The first item that fails counts, and in it the earliest wave, of that the last: as for a run (engine 4.5).
    """
    for depth in range(len(key), 0, -1):
        container_id, _, item = key[depth - 1]
        container = plan.scope(key[: depth - 1]).containers[plan.canvas.numbers[container_id]]
        if not container.side_by_side:
            continue
        wave, last = container.failed_at
        at = place.key.hex()
        is_first = container.failed_item < 0 or item < container.failed_item
        is_same = item == container.failed_item and (place.wave < wave or (place.wave == wave and at > last))
        if is_first or is_same:
            container.failed_item, container.failed_at = item, (place.wave, at)
            container.error = f"item {item}: {error}"
        return True
    return False


def leaves_a_loop(plan: Plan, node: Node) -> bool:
    """Whether the node is an ExitLoop whose direct container is a Loop; anywhere else it does nothing."""
    parent = plan.canvas.nodes[node.parent] if node.parent is not None else None
    return node.kind is Kind.EXIT_LOOP and parent is not None and parent.kind is Kind.LOOP


def _go_on(plan: Plan, node: Node, scope: Scope, container: Container, *, item: int, wave: int) -> None:
    """Begin what comes next in a container, unless the run or the item around it has ended before."""
    if container.side_by_side:
        place = Place(0, (), container.place.inside(container.next))
    else:
        place = Place(wave, container.place.trail, scope.region)
    if plan.is_too_late(place):
        return
    if plan.is_doomed(scope.key, place):
        if not container.open:
            _leave(plan, node, scope, container)
    elif container.side_by_side:
        _open_items(plan, node, scope, container)
    else:
        _start_pass(plan, node, scope, container, item=item, wave=wave)


def _open_items(plan: Plan, node: Node, scope: Scope, container: Container) -> None:
    """Fill the container's places with items; when all are done, one last visit collects."""
    assert container.count is not None  # side by side
    if not container.error:
        while container.open < container.concurrency and container.next < container.count:
            _start_item(plan, node, scope, container)
    if container.open:
        return
    if container.error:
        plan.failed_containers.append((scope.key, node.number))
        return
    wave = container.place.wave + 1 + container.waves
    _start_pass(plan, node, scope, container, item=container.next, wave=wave)


def _start_pass(plan: Plan, node: Node, scope: Scope, container: Container, *, item: int, wave: int) -> None:
    inner = Scope(
        key=(*scope.key, (node.id, container.ordinal, item)),
        region=scope.region,
        limits=scope.limits,
        trail=container.place,
    )
    container.next = item + 1
    _begin(plan, node, inner, container, Place(wave, container.place.trail, scope.region))


def _start_item(plan: Plan, node: Node, scope: Scope, container: Container) -> None:
    item = container.next
    inner = Scope(
        key=(*scope.key, (node.id, container.ordinal, item)),
        region=container.place.inside(item),
        limits=(*scope.limits, (scope.region.hex(), plan.run.revision + 1)),
        trail=container.place,
    )
    container.next = item + 1
    _begin(plan, node, inner, container, Place(0, (), inner.region))


def _begin(plan: Plan, node: Node, inner: Scope, container: Container, place: Place) -> None:
    container.open += 1
    plan.open_scope(inner)
    plan.scope(inner.key[:-1]).still &= ~node.bit
    plan.activate(plan.canvas.nodes[plan.canvas.items[node.number]], inner, place, None)


def _leave(plan: Plan, node: Node, scope: Scope, container: Container) -> None:
    """A container ends without what follows it: an edge led out of its body, or the item around it has failed."""
    del scope.containers[node.number]
    plan.decision.moved[container.activation] = Status.DONE
    plan.unalive(node, scope)
    plan.emit_finished(container.activation, node.id, None)


def _end_container(plan: Plan, inner_key: ScopeKey, place: Place, writer: UUID | None) -> None:
    """The container is done; what follows it comes after its last item visit or ExitLoop, which stored its outputs."""
    scope = plan.scope(inner_key[:-1])
    node = plan.canvas.node(inner_key[-1][0])
    container = scope.containers.pop(node.number)
    plan.decision.moved[container.activation] = Status.DONE
    plan.unalive(node, scope)
    scope.last_wave = max(scope.last_wave, place.wave)
    plan.emit_finished(writer or container.activation, node.id, None)
    plan.reach(node, node.downstream, scope, place)
