"""Order of message streams: which stream opens next, among those that exist and those that may still come.

A stream may open when no stream with an earlier order key can still come while everything idle (waiting forms,
Messages that wait for their stream) stays idle. The order key of a stream to come has a lower bound: the level of what
moves, plus the fewest edges from there.
"""

from canvas.graph.canvas import bits, mask_of
from canvas.routing.decision_builder import DecisionBuilder
from canvas.state.order_key import OrderKey, merge
from canvas.state.run_state import Container, MessageStreamState, Scope


def next_stream(builder: DecisionBuilder, *, at_rest: bool) -> MessageStreamState | None:
    """Return the stream that may open now: the first with a known order key, if no other can come before it.

    `at_rest`: everything is idle, so the first stream with a complete text may open.
    """
    known = [
        (order_key, stream)
        for stream in builder.run.streams
        if (order_key := _order_key_of(builder, stream)) is not None
    ]
    for order_key, stream in sorted(known, key=lambda pair: pair[0].key):
        if builder.run_ended_before(order_key):
            return None
        if not at_rest:
            return None if _is_preceded(builder, stream, order_key) else stream
        if stream.is_complete:
            return stream
    return None


def _order_key_of(builder: DecisionBuilder, stream: MessageStreamState) -> OrderKey | None:
    """Return the order key that a Message has or will have; None while more than its one writer can still reach it."""
    if stream.order_key is not None:
        return stream.order_key
    scope = builder.run.scopes.get(stream.scope)
    if scope is None:
        return None
    above = builder.canvas.reachability.above[stream.number]
    comers = (scope.active | mask_of(scope.reached)) & above
    if comers.bit_count() > 1 or comers & scope.idle:
        return None  # a writer that waits for a person writes nothing for now
    order_key = scope.reached.get(stream.number)
    for number in bits(comers):
        writer = builder.canvas.nodes[number]
        target = builder.canvas.stream_targets.get(number)
        elsewhere = (step for step in builder.canvas.reachability.steps[number] if step != stream.number)
        if target is None or target.message != stream.number or any(above >> step & 1 for step in elsewhere):
            return None
        if not builder.canvas.needs_stream_order:
            return OrderKey(0)  # the only stream there is: its key is compared with no other
        if number not in scope.order_keys:
            return None
        order_key = merge(order_key, scope.order_keys[number].child(writer.downstream.index(stream.number)))
    return order_key


def _is_preceded(builder: DecisionBuilder, stream: MessageStreamState, order_key: OrderKey) -> bool:
    """Whether a stream with an earlier order key can still come while everything idle stays idle."""
    if not builder.canvas.needs_stream_order:
        return False
    return any(_precedes_in(builder, scope, stream, order_key) for scope in builder.run.scopes.values())


def _precedes_in(builder: DecisionBuilder, scope: Scope, stream: MessageStreamState, order_key: OrderKey) -> bool:
    canvas = builder.canvas
    movers = (scope.active & ~scope.idle) | mask_of(scope.reached)
    container = canvas.numbers[scope.key[-1][0]] if scope.key else None
    streaming_nodes = canvas.streaming_nodes.get(container, 0)
    if not movers or not streaming_nodes:
        return False
    if stream.scope == scope.key:
        streaming_nodes &= ~_writers_of(builder, stream)
    for number in bits(streaming_nodes):
        if scope.idle & canvas.reachability.above_forward[number]:
            continue
        above = canvas.reachability.above[number]
        is_open = number in scope.containers
        if is_open and movers >> number & 1 and _body_precedes(builder, scope, number, order_key):
            return True
        comers = movers & (above if is_open else above | 1 << number)
        if any(_can_precede(builder, scope, comer, number, order_key) for comer in bits(comers)):
            return True
    return False


def _writers_of(builder: DecisionBuilder, stream: MessageStreamState) -> int:
    """Return the mask of a stream's Message and the model nodes that write to it.

    A model node counts for itself too: if it fails, its default value has a stream of its own before the Message's.
    """
    mask = 1 << stream.number
    for number, target in builder.canvas.stream_targets.items():
        if target.message == stream.number:
            mask |= 1 << number
    return mask


def _body_precedes(builder: DecisionBuilder, scope: Scope, number: int, order_key: OrderKey) -> bool:
    """Whether a later pass of an open container, or its own failure, can bring a stream before an order key.

    Its present passes are examined with their own scopes.
    """
    container = scope.containers[number]
    item = builder.canvas.nodes[builder.canvas.items[number]]
    has_streaming_nodes = number in builder.canvas.streaming_nodes
    if not container.is_parallel:
        # below the visit
        level = _current_level(builder, scope, number, container) + (1 if item.failure.streams_default else 2)
        return has_streaming_nodes and OrderKey(level, container.order_key.branch_path, scope.region) < order_key
    if container.order_key < order_key and (
        builder.canvas.nodes[number].failure.streams_default or item.failure.streams_default
    ):
        return True  # the container, or the visit that collects, may fail and stream its default value
    following = OrderKey(0, (), container.order_key.item_region(container.next_item))
    return has_streaming_nodes and container.next_item < (container.count or 0) and following < order_key


def _current_level(builder: DecisionBuilder, scope: Scope, number: int, container: Container) -> int:
    """Return the level that a container's present pass has reached."""
    node = builder.canvas.nodes[number]
    inner = builder.run.scopes.get((*scope.key, (node.id, container.ordinal, container.next_item - 1)))
    return max(container.order_key.level, inner.last_level if inner is not None else 0)


def _can_precede(builder: DecisionBuilder, scope: Scope, mover: int, streaming_node: int, limit: OrderKey) -> bool:
    """Whether an active or reached node can lead to a streaming node, or be it, with an order key before `limit`."""
    start = scope.order_keys.get(mover) or scope.reached.get(mover)
    if start is None:
        return False
    if mover == streaming_node:
        return start < limit
    level = start.level
    container = scope.containers.get(mover)
    if (
        container is not None
        and not container.is_parallel
        and not builder.canvas.containers_with_escaping_edges >> mover & 1
    ):
        level = _current_level(builder, scope, mover, container)
    frontier, seen = 1 << mover, 0
    while not frontier >> streaming_node & 1:
        level += 1
        seen |= frontier
        following = 0
        for number in bits(frontier):
            for step in builder.canvas.reachability.steps[number]:
                following |= 1 << step
        frontier = following & ~seen
        if not frontier or (level > limit.level and start.region == limit.region):
            return False
    return OrderKey(level, start.branch_path, start.region) < limit
