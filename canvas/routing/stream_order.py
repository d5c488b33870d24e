"""Which of several texts the user hears next: canonical order among what has been said and what may still come.

A text may open when nothing with an earlier place can still come while everything that is still (waiting forms,
Messages that wait for their turn) stays still. Where something will stand is bounded from below: by the wave of what
moves and the fewest steps from there.
"""

from canvas.graph.canvas import bits, mask_of
from canvas.routing.decision_builder import DecisionBuilder
from canvas.state.order_key import OrderKey, merged
from canvas.state.run_state import Container, MessageStreamState, Scope


def next_stream(builder: DecisionBuilder, *, at_rest: bool) -> MessageStreamState | None:
    """The turn that may open now: the first of those whose place is known, if nothing can come before it.

    `at_rest`: nothing moves, so the first of the whole texts opens.
    """
    known = [(place, entry) for entry in builder.run.speeches if (place := _place_of(builder, entry)) is not None]
    for place, entry in sorted(known, key=lambda pair: pair[0].key):
        if builder.run_ended_before(place):
            return None
        if not at_rest:
            return None if _is_preceded(builder, entry, place) else entry
        if entry.said:
            return entry
    return None


def _place_of(builder: DecisionBuilder, entry: MessageStreamState) -> OrderKey | None:
    """Where a Message stands or will stand; None while something besides its one speaker can still reach it."""
    if entry.place is not None:
        return entry.place
    scope = builder.run.scopes.get(entry.scope)
    if scope is None:
        return None
    above = builder.canvas.reach.above[entry.number]
    comers = (scope.alive | mask_of(scope.reached)) & above
    if comers.bit_count() > 1 or comers & scope.still:
        return None  # a speaker that waits for a person has nothing to say for now
    place = scope.reached.get(entry.number)
    for number in bits(comers):
        speaker = builder.canvas.nodes[number]
        turn = builder.canvas.turns.get(number)
        elsewhere = (step for step in builder.canvas.reach.steps[number] if step != entry.number)
        if turn is None or turn.message != entry.number or any(above >> step & 1 for step in elsewhere):
            return None
        if not builder.canvas.orders_speech:
            return OrderKey(0)  # the only text there is: no place is compared with it
        if number not in scope.places:
            return None
        place = merged(place, scope.places[number].step(speaker.downstream.index(entry.number)))
    return place


def _is_preceded(builder: DecisionBuilder, entry: MessageStreamState, place: OrderKey) -> bool:
    """Whether a text with an earlier place can still come while what is still stays still."""
    if not builder.canvas.orders_speech:
        return False
    return any(_precedes_in(builder, scope, entry, place) for scope in builder.run.scopes.values())


def _precedes_in(builder: DecisionBuilder, scope: Scope, entry: MessageStreamState, place: OrderKey) -> bool:
    canvas = builder.canvas
    movers = (scope.alive & ~scope.still) | mask_of(scope.reached)
    container = canvas.numbers[scope.key[-1][0]] if scope.key else None
    voices = canvas.voices.get(container, 0)
    if not movers or not voices:
        return False
    if entry.scope == scope.key:
        voices &= ~_voices_of(builder, entry)
    for number in bits(voices):
        if scope.still & canvas.reach.above_forward[number]:
            continue
        above = canvas.reach.above[number]
        is_open = number in scope.containers
        if is_open and movers >> number & 1 and _body_precedes(builder, scope, number, place):
            return True
        comers = movers & (above if is_open else above | 1 << number)
        if any(_comes_before(builder, scope, comer, number, place) for comer in bits(comers)):
            return True
    return False


def _voices_of(builder: DecisionBuilder, entry: MessageStreamState) -> int:
    """The node of a turn, and the models that speak in it: should one fail, its default is heard in between."""
    mask = 1 << entry.number
    for number, turn in builder.canvas.turns.items():
        if turn.message == entry.number:
            mask |= 1 << number
    return mask


def _body_precedes(builder: DecisionBuilder, scope: Scope, number: int, place: OrderKey) -> bool:
    """Whether a later pass of an open container, or its own failure, can bring a text before a place.

    What its present passes can bring is asked of their own scopes.
    """
    container = scope.containers[number]
    item = builder.canvas.nodes[builder.canvas.items[number]]
    has_voices = number in builder.canvas.voices
    if not container.side_by_side:
        wave = _wave_inside(builder, scope, number, container) + (1 if item.failure.is_heard else 2)  # below the visit
        return has_voices and OrderKey(wave, container.place.trail, scope.region) < place
    if container.place < place and (builder.canvas.nodes[number].failure.is_heard or item.failure.is_heard):
        return True  # it may fail after its items, or the visit that collects
    following = OrderKey(0, (), container.place.inside(container.next))
    return has_voices and container.next < (container.count or 0) and following < place


def _wave_inside(builder: DecisionBuilder, scope: Scope, number: int, container: Container) -> int:
    """The wave that a container's present pass has come to."""
    node = builder.canvas.nodes[number]
    inner = builder.run.scopes.get((*scope.key, (node.id, container.ordinal, container.next - 1)))
    return max(container.place.wave, inner.last_wave if inner is not None else 0)


def _comes_before(builder: DecisionBuilder, scope: Scope, mover: int, voice: int, limit: OrderKey) -> bool:
    """Whether a node that moves can bring a voice below it (or itself) to a place before `limit`."""
    start = scope.places.get(mover) or scope.reached.get(mover)
    if start is None:
        return False
    if mover == voice:
        return start < limit
    wave = start.wave
    container = scope.containers.get(mover)
    if container is not None and not container.side_by_side and not builder.canvas.leaky >> mover & 1:
        wave = _wave_inside(builder, scope, mover, container)
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
