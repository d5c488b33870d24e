"""Iteration and Loop bodies: the next item or round, leaving early, and the end of a container (engine 4.4).

A container that reports `ContainerOpened` stays alive while its body runs. Each pass of the body is a scope, begun by a
visit of the item node, which either starts the body (`NextIteration`) or ends the container (`ContainerExited`). One
after another there is one pass at a time and waves go on counting; side by side every item has a region of its own, and
a last visit, in the container's own region, collects.

A pass goes on until nothing in it is alive, whatever an ExitLoop has reported: so what runs does not depend on who is
faster.
"""

from uuid import UUID

from canvas.events.run_events import NODE_STARTED, Event
from canvas.graph import parallel_items
from canvas.graph.canvas import Node, NodeKind
from canvas.outcome import ContainerExited, ContainerOpened, Failed, Outcome
from canvas.routing import message_streams
from canvas.routing.decision_builder import DecisionBuilder
from canvas.state.order_key import OrderKey
from canvas.state.run_state import Container, DeferredEvent, Report, Scope, ScopeKey, Status, activation_id

PIPELINE_DEPTH = 4
"""How far the items that overlap may be ahead of the one that is told of, in as many as overlap: a slow one does not
hold up the others at once, and what is untold stays little."""


def open_container(builder: DecisionBuilder, report: Report, outcome: ContainerOpened) -> None:
    """A container's body begins. The counters start anew at each entry (components E7)."""
    node = builder.canvas.node(report.node_id)
    scope = builder.scopes.get(report.scope)
    container = Container(report.activation, report.ordinal, report.place, outcome.count, outcome.concurrency)
    if container.side_by_side:
        container.revision = builder.run.revision + 1
    elif outcome.count is not None and outcome.count > 1:
        container.span = parallel_items.pipelined_levels(builder.canvas, node)
    if container.overlaps:
        container.concurrency = parallel_items.AT_ONCE
        container.alone = parallel_items.sequential_warmup(builder.canvas, node)
    scope.containers[node.number] = container
    builder.decision.moved[report.activation] = Status.OPEN
    if not builder.activations.check_limit(
        _visitor(builder, node), (outcome.count or 0) * _fewest_of_a_pass(builder, node) + 1
    ):
        return
    _go_on(builder, node, scope, container, item=0, wave=report.place.wave + 1)


def on_container_exit(builder: DecisionBuilder, report: Report) -> None:
    """An item visit found nothing more to do, or an ExitLoop was reached."""
    node = builder.canvas.node(report.node_id)
    scope = builder.scopes.get(report.scope)
    builder.activations.finish(report, scope)
    builder.activations.emit_finished(report.activation, report.node_id, report.error)
    if node.kind.is_item:
        builder.scopes.close(scope.key)
        _end_container(builder, report.scope, report.place, report.activation)
    elif scope.leaving is None or scope.leaving < report.place:
        scope.leaving, scope.left_by = report.place, report.activation


def validated_outcome(builder: DecisionBuilder, report: Report) -> Outcome:
    """What a report says. A visit of overlapping items that leaves before the last has met another list than it should.

    Nothing changes a list that such items come from, so nobody will see this; but a run must not hang on it.
    """
    if not isinstance(report.outcome, ContainerExited) or not report.scope:
        return report.outcome
    container_id, _, item = report.scope[-1]
    container = builder.containers.pipelined_around(report.scope)
    if container is None or item >= (container.count or 0):
        return report.outcome
    return Failed(f"The list of {container_id} has changed while its items ran. Set its max_concurrency to 1.")


def on_iteration_end(builder: DecisionBuilder, scope: Scope) -> None:
    """Nothing is alive in a pass any more: go on with the next item, or end the container."""
    outer = builder.scopes.get(scope.key[:-1])
    container_id, _, item = scope.key[-1]
    node = builder.canvas.node(container_id)
    container = outer.containers[node.number]
    if scope.counted_still:
        container.still -= 1
    message_streams.close_streams_of(builder, scope.key)
    builder.scopes.close(scope.key)
    container.open -= 1
    if container.overlaps:
        outer.last_wave = max(outer.last_wave, scope.last_wave)
        container.ended.append(item)
        _tell_of_items(builder, outer, container)
        _go_on(builder, node, outer, container, item=container.next, wave=container.visit(container.next).wave)
        return
    if scope.region != outer.region:
        container.waves += scope.last_wave + 1
    else:
        container.waves = scope.last_wave - container.place.wave
        outer.last_wave = max(outer.last_wave, scope.last_wave)
    if container.side_by_side:
        _go_on(builder, node, outer, container, item=container.next, wave=0)
    elif builder.run_ended_before(OrderKey(scope.last_wave + 1, region=scope.region)):
        return  # the run ends, and the container with it
    elif scope.leaving is not None:
        _end_container(builder, scope.key, scope.leaving, scope.left_by)
    elif scope.escaped:
        _leave(builder, node, outer, container)
    else:
        _go_on(builder, node, outer, container, item=item + 1, wave=scope.last_wave + 1)


def item_failed(builder: DecisionBuilder, key: ScopeKey, place: OrderKey, error: str) -> bool:
    """A failure inside side-by-side items belongs to their container; whether there is such a container.

    The first item that fails counts, and in it the earliest wave, of that the last: as for a run (engine 4.5).
    """
    for depth in range(len(key), 0, -1):
        container_id, _, item = key[depth - 1]
        container = builder.scopes.get(key[: depth - 1]).containers[builder.canvas.numbers[container_id]]
        if not container.side_by_side:
            continue
        builder.containers.cancel_later_items(key[:depth])
        _note_failure(container, item, place, f"item {item}: {error}")
        return True
    return False


def fail_pipelined_item(builder: DecisionBuilder, report: Report, failed: Failed) -> None:
    """A node of an overlapping item has failed for good. Ahead of the item's turn it fails when that has come.

    Until then the items before it go on, and nothing begins that would come after it.
    """
    scope = builder.scopes.get(report.scope)
    node = builder.canvas.node(report.node_id)
    container = builder.containers.pipelined_around(scope.key)
    assert container is not None  # the caller has looked
    builder.record_last_node(report)
    builder.activations.finish(report, scope)
    builder.containers.cancel_later_items(scope.key)
    failure = DeferredEvent(node.number, True, failed.error, failure=(report.place, failed.code))
    if (ahead := builder.containers.deferred_events(scope.key)) is None:
        _tell(builder, builder.scopes.get(scope.key[:-1]), container, failure)
        return
    ahead.append(failure)
    _note_failure(container, scope.key[-1][2], report.place, failed.error)


def leaves_a_loop(builder: DecisionBuilder, node: Node) -> bool:
    """Whether the node is an ExitLoop whose direct container is a Loop; anywhere else it does nothing."""
    parent = builder.canvas.nodes[node.parent] if node.parent is not None else None
    return node.kind is NodeKind.EXIT_LOOP and parent is not None and parent.kind is NodeKind.LOOP


def _note_failure(container: Container, item: int, place: OrderKey, error: str) -> None:
    wave, last = container.failed_at
    at = place.key.hex()
    is_first = container.failed_item < 0 or item < container.failed_item
    is_same = item == container.failed_item and (place.wave < wave or (place.wave == wave and at > last))
    if is_first or is_same:
        container.failed_item, container.failed_at, container.error = item, (place.wave, at), error


def _tell_of_items(builder: DecisionBuilder, scope: Scope, container: Container) -> None:
    """Tell of the items whose turn has come, up to the first that has not ended."""
    while container.shown in container.ended:
        if builder.is_after_failure(scope.key, container.visit(container.shown + 1)):
            return
        container.ended.remove(container.shown)
        container.shown += 1
        for untold in container.untold.pop(container.shown, ()):
            _tell(builder, scope, container, untold)


def _tell(builder: DecisionBuilder, scope: Scope, container: Container, untold: DeferredEvent) -> None:
    """Say what an item did ahead of its turn. A failure ends the items around the container, or else the run."""
    node = builder.canvas.nodes[untold.node]
    parent = builder.canvas.nodes[node.parent] if node.parent is not None else None
    assert parent is not None  # it stands in the container's body
    key = (*scope.key, (parent.id, container.ordinal, container.shown))
    activation = activation_id(builder.run.run_id, node.id, key, 0)
    if not untold.has_ended:
        builder.emit(Event(NODE_STARTED, activation=activation, node_id=node.id))
        return
    builder.activations.emit_finished(activation, node.id, untold.error)
    if untold.failure is not None:
        builder.decision.inheriting.append(activation)
        place, code = untold.failure
        error = untold.error or ""
        if not item_failed(builder, scope.key, place, error):
            builder.fail_run(node.id, place, error, code)


def _go_on(builder: DecisionBuilder, node: Node, scope: Scope, container: Container, *, item: int, wave: int) -> None:
    """Begin what comes next in a container, unless the run or the item around it has ended before."""
    if container.side_by_side:
        place = OrderKey(0, (), container.place.inside(container.next))
    else:
        place = OrderKey(wave, container.place.trail, scope.region)
    if builder.run_ended_before(place):
        return
    if builder.scope_failed_before(scope.key, place):
        if not container.open:
            _leave(builder, node, scope, container)
    elif container.overlaps:
        _open_overlapping(builder, node, scope, container)
    elif container.side_by_side:
        _open_items(builder, node, scope, container)
    else:
        _start_pass(builder, node, scope, container, item=item, wave=wave)


def _open_items(builder: DecisionBuilder, node: Node, scope: Scope, container: Container) -> None:
    """Fill the container's places with items; when all are done, one last visit collects."""
    assert container.count is not None  # side by side
    if not container.error:
        while container.open < container.concurrency and container.next < container.count:
            if not builder.activations.check_limit(_visitor(builder, node)):
                return
            _start_item(builder, node, scope, container)
    if container.open:
        return
    if container.error:
        builder.containers.failed.append((scope.key, node.number))
        return
    wave = container.place.wave + 1 + container.waves
    _start_pass(builder, node, scope, container, item=container.next, wave=wave)


def _open_overlapping(builder: DecisionBuilder, node: Node, scope: Scope, container: Container) -> None:
    """Begin the next items ahead of their turn; when all have ended, one last visit collects."""
    count = container.count or 0
    width = 1 if container.shown < container.alone else container.concurrency
    most = min(count, container.shown + PIPELINE_DEPTH * width)
    while container.open < width and container.next < most and not container.error:
        place = container.visit(container.next)
        if builder.is_after_failure(scope.key, place):
            return
        _start_pass(builder, node, scope, container, item=container.next, wave=place.wave)
    if not container.open and container.next == count:
        _start_pass(builder, node, scope, container, item=count, wave=container.visit(count).wave)


def _start_pass(
    builder: DecisionBuilder, node: Node, scope: Scope, container: Container, *, item: int, wave: int
) -> None:
    if not builder.activations.check_limit(_visitor(builder, node)):
        return
    inner = Scope(
        key=(*scope.key, (node.id, container.ordinal, item)),
        region=scope.region,
        limits=scope.limits,
        trail=container.place,
    )
    container.next = item + 1
    _begin(builder, node, inner, container, OrderKey(wave, container.place.trail, scope.region))


def _start_item(builder: DecisionBuilder, node: Node, scope: Scope, container: Container) -> None:
    item = container.next
    inner = Scope(
        key=(*scope.key, (node.id, container.ordinal, item)),
        region=container.place.inside(item),
        limits=(*scope.limits, (scope.region.hex(), container.revision or builder.run.revision + 1)),
        trail=container.place,
    )
    container.next = item + 1
    _begin(builder, node, inner, container, OrderKey(0, (), inner.region))


def _begin(builder: DecisionBuilder, node: Node, inner: Scope, container: Container, place: OrderKey) -> None:
    container.open += 1
    builder.scopes.open(inner)
    builder.scopes.get(inner.key[:-1]).still &= ~node.bit
    builder.activations.activate(_visitor(builder, node), inner, place, None)


def _fewest_of_a_pass(builder: DecisionBuilder, container: Node) -> int:
    """The activations that each pass of a container has at least: its item's, and those that follow without a choice.

    A list that cannot fit is refused before its first item, and not when most of it was done and paid for.
    """
    canvas = builder.canvas
    item = _visitor(builder, container)
    if canvas.leaky & container.bit:
        return 1  # a pass may end anywhere
    certain, found, mask = 0, [item], item.bit
    while found:
        node = found.pop()
        certain += 1
        if node.chooses or node.failure.leads_elsewhere:
            continue
        for number in node.downstream:
            target = canvas.nodes[number]
            if target.parent == container.number and not mask & target.bit:
                mask |= target.bit
                found.append(target)
    return certain


def _visitor(builder: DecisionBuilder, container: Node) -> Node:
    """The item node that is visited before each pass of a container."""
    return builder.canvas.nodes[builder.canvas.items[container.number]]


def _leave(builder: DecisionBuilder, node: Node, scope: Scope, container: Container) -> None:
    """A container ends without what follows it: an edge led out of its body, or the item around it has failed."""
    del scope.containers[node.number]
    builder.decision.moved[container.activation] = Status.DONE
    builder.activations.deactivate(node, scope)
    builder.activations.emit_finished(container.activation, node.id, None)


def _end_container(builder: DecisionBuilder, inner_key: ScopeKey, place: OrderKey, writer: UUID | None) -> None:
    """The container is done; what follows it comes after its last item visit or ExitLoop, which stored its outputs."""
    scope = builder.scopes.get(inner_key[:-1])
    node = builder.canvas.node(inner_key[-1][0])
    container = scope.containers.pop(node.number)
    builder.decision.moved[container.activation] = Status.DONE
    builder.activations.deactivate(node, scope)
    scope.last_wave = max(scope.last_wave, place.wave)
    builder.activations.emit_finished(writer or container.activation, node.id, None)
    builder.follow_edges(node, node.downstream, scope, place)
