"""Routing of Iteration and Loop bodies: the next pass, an early exit, and the end of a container.

A container that reports `ContainerOpened` stays active while its body runs. Each pass of the body is a scope. It begins
with a visit of the item node, which either starts the body (`NextIteration`) or ends the container (`ContainerExited`).

- Sequential items: one pass at a time; levels continue to count from pass to pass.
- Parallel items: every item has a region of its own; a last visit, in the container's own region, collects the results.
- Pipelined items: passes run ahead of their order, but have the order keys of a sequential run, and events of an item
  are deferred until all items before it have ended (`canvas/graph/parallel_items.py`).

A pass continues until nothing in it is active, whatever an ExitLoop has reported, so what runs does not depend on which
node is faster.
"""

from canvas.events.run_events import NODE_STARTED, Event
from canvas.graph import parallel_items
from canvas.graph.canvas import Node, NodeKind
from canvas.ids import ActivationId
from canvas.outcome import ContainerExited, ContainerOpened, Failed, Outcome
from canvas.routing import message_streams
from canvas.routing.decision_builder import DecisionBuilder
from canvas.state.order_key import OrderKey
from canvas.state.run_state import ActivationStatus, Container, DeferredEvent, Report, Scope, ScopeKey, activation_id

PIPELINE_DEPTH = 4
"""Pipelined items may be this many times `concurrency` ahead of the first item that has not ended. So one slow item
does not block the others at once, and few events are deferred."""


def open_container(builder: DecisionBuilder, report: Report, outcome: ContainerOpened) -> None:
    """Open a container's body. Its counters start at 0 at each entry."""
    node = builder.canvas.node(report.node_id)
    scope = builder.scopes.get(report.scope)
    container = Container(report.activation, report.ordinal, report.order_key, outcome.count, outcome.concurrency)
    if container.is_parallel:
        container.revision = builder.run.revision + 1
    elif outcome.count is not None and outcome.count > 1:
        container.levels_per_pass = parallel_items.pipelined_levels(builder.canvas, node)
    if container.is_pipelined:
        container.concurrency = parallel_items.AT_ONCE
        container.warmup_items = parallel_items.sequential_warmup(builder.canvas, node)
    scope.containers[node.number] = container
    builder.decision.new_statuses[report.activation] = ActivationStatus.OPEN
    needed = (outcome.count or 0) * _min_activations_per_pass(builder, node) + 1
    if not builder.activations.check_limit(_item_node(builder, node), needed):
        return
    _begin_next(builder, node, scope, container, item=0, level=report.order_key.level + 1)


def on_container_exit(builder: DecisionBuilder, report: Report) -> None:
    """End the container after its last item visit, or record that an ExitLoop has reported in this pass."""
    node = builder.canvas.node(report.node_id)
    scope = builder.scopes.get(report.scope)
    builder.activations.finish(report, scope)
    builder.activations.emit_finished(report.activation, report.node_id, report.error)
    if node.kind.is_item:
        builder.scopes.close(scope.key)
        _end_container(builder, report.scope, report.order_key, report.activation)
    elif scope.exit_key is None or scope.exit_key < report.order_key:
        scope.exit_key, scope.exited_by = report.order_key, report.activation


def validated_outcome(builder: DecisionBuilder, report: Report) -> Outcome:
    """Return the outcome of a report; a failure if a visit of pipelined items has exited before the last item.

    Such a visit has seen another list than the container. No node can change the list of pipelined items, so this
    should not happen; if it does, the run fails and does not hang.
    """
    if not isinstance(report.outcome, ContainerExited) or not report.scope:
        return report.outcome
    container_id, _, item = report.scope[-1]
    container = builder.containers.pipelined_around(report.scope)
    if container is None or item >= (container.count or 0):
        return report.outcome
    return Failed(f"The list of {container_id} has changed while its items ran. Set its max_concurrency to 1.")


def on_iteration_end(builder: DecisionBuilder, scope: Scope) -> None:
    """Close a pass in which nothing is active; begin the next pass, or end the container."""
    outer = builder.scopes.get(scope.key[:-1])
    container_id, _, item = scope.key[-1]
    node = builder.canvas.node(container_id)
    container = outer.containers[node.number]
    if scope.is_counted_idle:
        container.idle_items -= 1
    message_streams.close_streams_of(builder, scope.key)
    builder.scopes.close(scope.key)
    container.open_items -= 1
    if container.is_pipelined:
        outer.last_level = max(outer.last_level, scope.last_level)
        container.ended_items.append(item)
        _emit_deferred_items(builder, outer, container)
        _begin_next(
            builder,
            node,
            outer,
            container,
            item=container.next_item,
            level=container.visit_key(container.next_item).level,
        )
        return
    if scope.region != outer.region:
        container.levels_used += scope.last_level + 1
    else:
        container.levels_used = scope.last_level - container.order_key.level
        outer.last_level = max(outer.last_level, scope.last_level)
    if container.is_parallel:
        _begin_next(builder, node, outer, container, item=container.next_item, level=0)
    elif builder.run_ended_before(OrderKey(scope.last_level + 1, region=scope.region)):
        return  # the run ends, and the container with it
    elif scope.exit_key is not None:
        _end_container(builder, scope.key, scope.exit_key, scope.exited_by)
    elif scope.has_escaped:
        _end_without_successors(builder, node, outer, container)
    else:
        _begin_next(builder, node, outer, container, item=item + 1, level=scope.last_level + 1)


def fail_parallel_item(builder: DecisionBuilder, key: ScopeKey, order_key: OrderKey, error: str) -> bool:
    """Record a failure in the innermost container of parallel items around a scope; return whether there is one.

    Of several failures that of the first item counts; in it the earliest level, and of that the last, as for a run.
    """
    for depth in range(len(key), 0, -1):
        container_id, _, item = key[depth - 1]
        container = builder.scopes.get(key[: depth - 1]).containers[builder.canvas.numbers[container_id]]
        if not container.is_parallel:
            continue
        builder.containers.cancel_later_items(key[:depth])
        _record_failure(container, item, order_key, f"item {item}: {error}")
        return True
    return False


def fail_pipelined_item(builder: DecisionBuilder, report: Report, failed: Failed) -> None:
    """Apply the final failure of a node of a pipelined item.

    If items before this one have not ended, the failure is deferred: they continue, and no later item begins.
    """
    scope = builder.scopes.get(report.scope)
    node = builder.canvas.node(report.node_id)
    container = builder.containers.pipelined_around(scope.key)
    assert container is not None  # checked by the caller
    builder.record_last_node(report)
    builder.activations.finish(report, scope)
    builder.containers.cancel_later_items(scope.key)
    failure = DeferredEvent(node.number, True, failed.error, failure=(report.order_key, failed.code))
    if (ahead := builder.containers.deferred_events(scope.key)) is None:
        _emit_deferred(builder, builder.scopes.get(scope.key[:-1]), container, failure)
        return
    ahead.append(failure)
    _record_failure(container, scope.key[-1][2], report.order_key, failed.error)


def exits_a_loop(builder: DecisionBuilder, node: Node) -> bool:
    """Whether the node is an ExitLoop directly in a Loop; anywhere else an ExitLoop has no effect."""
    parent = builder.canvas.nodes[node.parent] if node.parent is not None else None
    return node.kind is NodeKind.EXIT_LOOP and parent is not None and parent.kind is NodeKind.LOOP


def _record_failure(container: Container, item: int, order_key: OrderKey, error: str) -> None:
    level, last = container.failed_at
    at = order_key.key.hex()
    is_first = container.failed_item < 0 or item < container.failed_item
    is_same = item == container.failed_item and (order_key.level < level or (order_key.level == level and at > last))
    if is_first or is_same:
        container.failed_item, container.failed_at, container.error = item, (order_key.level, at), error


def _emit_deferred_items(builder: DecisionBuilder, scope: Scope, container: Container) -> None:
    """Emit the deferred events of pipelined items in order, up to the first item that has not ended."""
    while container.first_open_item in container.ended_items:
        if builder.is_after_failure(scope.key, container.visit_key(container.first_open_item + 1)):
            return
        container.ended_items.remove(container.first_open_item)
        container.first_open_item += 1
        for deferred in container.deferred_events.pop(container.first_open_item, ()):
            _emit_deferred(builder, scope, container, deferred)


def _emit_deferred(builder: DecisionBuilder, scope: Scope, container: Container, deferred: DeferredEvent) -> None:
    """Emit a deferred event. A deferred failure fails the parallel items around the container, else the run."""
    node = builder.canvas.nodes[deferred.node]
    parent = builder.canvas.nodes[node.parent] if node.parent is not None else None
    assert parent is not None  # it stands in the container's body
    key = (*scope.key, (parent.id, container.ordinal, container.first_open_item))
    activation = activation_id(builder.run.run_id, node.id, key, 0)
    if not deferred.has_ended:
        builder.emit(Event(NODE_STARTED, activation=activation, node_id=node.id))
        return
    builder.activations.emit_finished(activation, node.id, deferred.error)
    if deferred.failure is not None:
        builder.decision.copy_outputs_for.append(activation)
        order_key, code = deferred.failure
        error = deferred.error or ""
        if not fail_parallel_item(builder, scope.key, order_key, error):
            builder.fail_run(node.id, order_key, error, code)


def _begin_next(
    builder: DecisionBuilder, node: Node, scope: Scope, container: Container, *, item: int, level: int
) -> None:
    """Begin the next pass or passes of a container, unless the run or the item around it has failed before."""
    if container.is_parallel:
        order_key = OrderKey(0, (), container.order_key.item_region(container.next_item))
    else:
        order_key = OrderKey(level, container.order_key.branch_path, scope.region)
    if builder.run_ended_before(order_key):
        return
    if builder.scope_failed_before(scope.key, order_key):
        if not container.open_items:
            _end_without_successors(builder, node, scope, container)
    elif container.is_pipelined:
        _begin_pipelined_items(builder, node, scope, container)
    elif container.is_parallel:
        _begin_parallel_items(builder, node, scope, container)
    else:
        _start_pass(builder, node, scope, container, item=item, level=level)


def _begin_parallel_items(builder: DecisionBuilder, node: Node, scope: Scope, container: Container) -> None:
    """Begin parallel items up to the container's concurrency; when all have ended, begin the visit that collects."""
    assert container.count is not None  # side by side
    if not container.error:
        while container.open_items < container.concurrency and container.next_item < container.count:
            if not builder.activations.check_limit(_item_node(builder, node)):
                return
            _start_parallel_item(builder, node, scope, container)
    if container.open_items:
        return
    if container.error:
        builder.containers.failed.append((scope.key, node.number))
        return
    level = container.order_key.level + 1 + container.levels_used
    _start_pass(builder, node, scope, container, item=container.next_item, level=level)


def _begin_pipelined_items(builder: DecisionBuilder, node: Node, scope: Scope, container: Container) -> None:
    """Begin the next pipelined items; when all have ended, begin the visit that collects."""
    count = container.count or 0
    width = 1 if container.first_open_item < container.warmup_items else container.concurrency
    most = min(count, container.first_open_item + PIPELINE_DEPTH * width)
    while container.open_items < width and container.next_item < most and not container.error:
        order_key = container.visit_key(container.next_item)
        if builder.is_after_failure(scope.key, order_key):
            return
        _start_pass(builder, node, scope, container, item=container.next_item, level=order_key.level)
    if not container.open_items and container.next_item == count:
        _start_pass(builder, node, scope, container, item=count, level=container.visit_key(count).level)


def _start_pass(
    builder: DecisionBuilder, node: Node, scope: Scope, container: Container, *, item: int, level: int
) -> None:
    if not builder.activations.check_limit(_item_node(builder, node)):
        return
    inner = Scope(
        key=(*scope.key, (node.id, container.ordinal, item)),
        region=scope.region,
        limits=scope.limits,
        container_key=container.order_key,
    )
    container.next_item = item + 1
    _begin_pass(builder, node, inner, container, OrderKey(level, container.order_key.branch_path, scope.region))


def _start_parallel_item(builder: DecisionBuilder, node: Node, scope: Scope, container: Container) -> None:
    item = container.next_item
    inner = Scope(
        key=(*scope.key, (node.id, container.ordinal, item)),
        region=container.order_key.item_region(item),
        limits=(*scope.limits, (scope.region.hex(), container.revision or builder.run.revision + 1)),
        container_key=container.order_key,
    )
    container.next_item = item + 1
    _begin_pass(builder, node, inner, container, OrderKey(0, (), inner.region))


def _begin_pass(builder: DecisionBuilder, node: Node, inner: Scope, container: Container, order_key: OrderKey) -> None:
    container.open_items += 1
    builder.scopes.open(inner)
    builder.scopes.get(inner.key[:-1]).idle &= ~node.bit
    builder.activations.activate(_item_node(builder, node), inner, order_key, None)


def _min_activations_per_pass(builder: DecisionBuilder, container: Node) -> int:
    """Return how many activations each pass of a container has at least: the item node's, and those without a choice.

    With it, a list that exceeds the limit on activations is refused before its first item, and not after most of its
    items have run and been paid for.
    """
    canvas = builder.canvas
    item = _item_node(builder, container)
    if canvas.containers_with_escaping_edges & container.bit:
        return 1  # a pass may end anywhere
    certain, found, mask = 0, [item], item.bit
    while found:
        node = found.pop()
        certain += 1
        if node.is_router or node.failure.has_goto:
            continue
        for number in node.downstream:
            target = canvas.nodes[number]
            if target.parent == container.number and not mask & target.bit:
                mask |= target.bit
                found.append(target)
    return certain


def _item_node(builder: DecisionBuilder, container: Node) -> Node:
    """Return the item node, which is visited at the beginning of each pass of a container."""
    return builder.canvas.nodes[builder.canvas.items[container.number]]


def _end_without_successors(builder: DecisionBuilder, node: Node, scope: Scope, container: Container) -> None:
    """End a container without following its edges: an edge led out of its body, or the item around it has failed."""
    del scope.containers[node.number]
    builder.decision.new_statuses[container.activation] = ActivationStatus.DONE
    builder.activations.deactivate(node, scope)
    builder.activations.emit_finished(container.activation, node.id, None)


def _end_container(
    builder: DecisionBuilder, inner_key: ScopeKey, order_key: OrderKey, writer: ActivationId | None
) -> None:
    """End a container and follow its edges. `writer` is the item visit or ExitLoop that has stored its outputs."""
    scope = builder.scopes.get(inner_key[:-1])
    node = builder.canvas.node(inner_key[-1][0])
    container = scope.containers.pop(node.number)
    builder.decision.new_statuses[container.activation] = ActivationStatus.DONE
    builder.activations.deactivate(node, scope)
    scope.last_level = max(scope.last_level, order_key.level)
    builder.activations.emit_finished(writer or container.activation, node.id, None)
    builder.follow_edges(node, node.downstream, scope, order_key)
