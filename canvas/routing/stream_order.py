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
        (place, stream) for stream in builder.run.speeches if (place := _order_key_of(builder, stream)) is not None
    ]
    for place, stream in sorted(known, key=lambda pair: pair[0].key):
        if builder.run_ended_before(place):
            return None
        if not at_rest:
            return None if _is_preceded(builder, stream, place) else stream
        if stream.said:
            return stream
    return None


def _order_key_of(builder: DecisionBuilder, stream: MessageStreamState) -> OrderKey | None:
    """Return the order key that a Message has or will have; None while more than its one writer can still reach it."""
    if stream.place is not None:
        return stream.place
    scope = builder.run.scopes.get(stream.scope)
    if scope is None:
        return None
    above = builder.canvas.reach.above[stream.number]
    comers = (scope.alive | mask_of(scope.reached)) & above
    if comers.bit_count() > 1 or comers & scope.still:
        return None  # a writer that waits for a person writes nothing for now
    place = scope.reached.get(stream.number)
    for number in bits(comers):
        writer = builder.canvas.nodes[number]
        target = builder.canvas.turns.get(number)
        elsewhere = (step for step in builder.canvas.reach.steps[number] if step != stream.number)
        if target is None or target.message != stream.number or any(above >> step & 1 for step in elsewhere):
            return None
        if not builder.canvas.orders_speech:
            return OrderKey(0)  # the only stream there is: its key is compared with no other
        if number not in scope.places:
            return None
        place = merge(place, scope.places[number].step(writer.downstream.index(stream.number)))
    return place


def _is_preceded(builder: DecisionBuilder, stream: MessageStreamState, place: OrderKey) -> bool:
    """Whether a stream with an earlier order key can still come while everything idle stays idle."""
    if not builder.canvas.orders_speech:
        return False
    return any(_precedes_in(builder, scope, stream, place) for scope in builder.run.scopes.values())


def _precedes_in(builder: DecisionBuilder, scope: Scope, stream: MessageStreamState, place: OrderKey) -> bool:
    canvas = builder.canvas
    movers = (scope.alive & ~scope.still) | mask_of(scope.reached)
    container = canvas.numbers[scope.key[-1][0]] if scope.key else None
    voices = canvas.voices.get(container, 0)
    if not movers or not voices:
        return False
    if stream.scope == scope.key:
        voices &= ~_writers_of(builder, stream)
    for number in bits(voices):
        if scope.still & canvas.reach.above_forward[number]:
            continue
        above = canvas.reach.above[number]
        is_open = number in scope.containers
        if is_open and movers >> number & 1 and _body_precedes(builder, scope, number, place):
            return True
        comers = movers & (above if is_open else above | 1 << number)
        if any(_can_precede(builder, scope, comer, number, place) for comer in bits(comers)):
            return True
    return False


def _writers_of(builder: DecisionBuilder, stream: MessageStreamState) -> int:
    """Return the mask of a stream's Message and the model nodes that write to it.

    A model node counts for itself too: if it fails, its default value has a stream of its own before the Message's.
    """
    mask = 1 << stream.number
    for number, target in builder.canvas.turns.items():
        if target.message == stream.number:
            mask |= 1 << number
    return mask


def _body_precedes(builder: DecisionBuilder, scope: Scope, number: int, place: OrderKey) -> bool:
    """Whether a later pass of an open container, or its own failure, can bring a stream before an order key.

    Its present passes are examined with their own scopes.
    """
    container = scope.containers[number]
    item = builder.canvas.nodes[builder.canvas.items[number]]
    has_voices = number in builder.canvas.voices
    if not container.side_by_side:
        wave = _current_level(builder, scope, number, container) + (
            1 if item.failure.is_heard else 2
        )  # below the visit
        return has_voices and OrderKey(wave, container.place.trail, scope.region) < place
    if container.place < place and (builder.canvas.nodes[number].failure.is_heard or item.failure.is_heard):
        return True  # the container, or the visit that collects, may fail and stream its default value
    following = OrderKey(0, (), container.place.inside(container.next))
    return has_voices and container.next < (container.count or 0) and following < place


def _current_level(builder: DecisionBuilder, scope: Scope, number: int, container: Container) -> int:
    """Return the level that a container's present pass has reached."""
    node = builder.canvas.nodes[number]
    inner = builder.run.scopes.get((*scope.key, (node.id, container.ordinal, container.next - 1)))
    return max(container.place.wave, inner.last_wave if inner is not None else 0)


def _can_precede(builder: DecisionBuilder, scope: Scope, mover: int, voice: int, limit: OrderKey) -> bool:
    """Whether an active or reached node can lead to a streaming node, or be it, with an order key before `limit`."""
    start = scope.places.get(mover) or scope.reached.get(mover)
    if start is None:
        return False
    if mover == voice:
        return start < limit
    wave = start.wave
    container = scope.containers.get(mover)
    if container is not None and not container.side_by_side and not builder.canvas.leaky >> mover & 1:
        wave = _current_level(builder, scope, mover, container)
    frontier, seen = 1 << mover, 0
    while not frontier >> voice & 1:
        wave += 1
        seen |= frontier
        following = 0
        for number in bits(frontier):
            for step in builder.canvas.reach.steps[number]:
                following |= 1 << step
        frontier = following & ~seen
        if not frontier or (wave > limit.wave and start.region == limit.region):
            return False
    return OrderKey(wave, start.trail, start.region) < limit
