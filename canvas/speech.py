"""Whose text the user hears while it is made, and in which turn (engine 4.8, protocol "Speech").

Speakers never wait; readers order. A model node speaks in the turn of the Message after it. A turn *opens* when no
other is open and no Message with an earlier place can still come while everything that is still stays still; so what
holds a turn always moves. Opening writes the Message's `node_started`; closing writes `message_end`, the held
`node_finished` of the speakers, and the Message's own.
"""

from uuid import UUID

from canvas.events import MESSAGE_END, MESSAGE_RESET, NODE_STARTED, Event
from canvas.graph import Node, bits
from canvas.outcome import Finished
from canvas.place import Place, merged
from canvas.plan import Plan
from canvas.state import Held, Report, Scope, Speech, Status


def turn_for(plan: Plan, scope: Scope, node: Node, place: Place) -> UUID | None:
    """The turn a newly activated node speaks in; None where nobody hears it live.

    A Message speaks in its own. A model node speaks in its Message's unless something that the Message's text mentions
    before it is still to come.
    """
    if plan.canvas.messages & node.bit:
        return plan.next_id(node, scope)
    turn = plan.canvas.turns.get(node.number)
    if turn is None or plan.canvas.unheard & node.bit:
        return None
    message = plan.canvas.nodes[turn.message]
    entry = _entry(plan, scope, message)
    moving = scope.alive | _reached(scope)
    above = plan.canvas.reach.above
    to_come = any(moving & (above[number] | 1 << number) for number in bits(turn.mentioned_before))
    return None if to_come else entry.turn


def message_activated(plan: Plan, scope: Scope, message: Node, place: Place) -> None:
    """A Message is about to be activated: its place is known from here on."""
    _entry(plan, scope, message).place = place


def holds(plan: Plan, report: Report) -> bool:
    """Keep a speaker's `node_finished` until its Message has ended; whether there is a Message to wait for."""
    turn = plan.canvas.turns.get(plan.canvas.numbers[report.node_id])
    if turn is None or plan.canvas.unheard >> plan.canvas.numbers[report.node_id] & 1:
        return False
    scope = plan.scope(report.scope)
    entry = _entry(plan, scope, plan.canvas.nodes[turn.message])
    entry.held.append(Held(report.activation, report.node_id, report.error, report.place.key.hex()))
    return True


def message_said(plan: Plan, report: Report, outcome: Finished) -> None:
    """A Message's whole text is there; it is alive until its turn has come."""
    scope = plan.scope(report.scope)
    node = plan.canvas.node(report.node_id)
    entry = _find(plan, report.activation) or _entry_for(plan, report.activation, node, scope)
    entry.said = True
    entry.place = report.place
    end = outcome.end
    if end is not None:
        members = {"status": end.status, "attachment": end.attachment, "downloads": list(end.downloads)}
        entry.end = {name: value for name, value in members.items() if value}
    if report.retake and entry.opened:
        _reset(plan, entry.turn)
    plan.decision.moved[report.activation] = Status.SAYING
    plan.hold(node, scope)


def say_default(plan: Plan, report: Report, error: str, text: str) -> None:
    """A failed node's default value is heard in a turn of its own, before its `node_finished`."""
    scope = plan.scope(report.scope)
    node = plan.canvas.node(report.node_id)
    silence(plan, report)
    entry = _entry_for(plan, report.activation, node, scope)
    entry.said, entry.place, entry.error = True, report.place, error
    plan.decision.texts[report.activation] = (node.id, text)
    plan.decision.moved[report.activation] = Status.SAYING
    plan.hold(node, scope)


def take_back(plan: Plan, report: Report) -> None:
    """A speaker's attempt is lost: what it said in its turn is cut before the next attempt speaks."""
    entry = _find(plan, report.turn) if report.turn else None
    if entry is not None and not entry.said:
        _reset(plan, entry.turn)


def silence(plan: Plan, report: Report) -> None:
    """A node that failed will not speak: a Message's turn ends where it is, and what it held is let go."""
    entry = _find(plan, report.activation)
    if entry is None:
        return
    if not entry.opened:
        _open(plan, entry)
    _close(plan, entry)


def open_turns(plan: Plan, *, at_rest: bool) -> bool:
    """Open the next turn if its time has come, and close it if its text is whole; whether anything changed.

    `at_rest`: nothing in the run moves any more, so finished turns open in order of place whatever may come later.
    """
    entry = next((speech for speech in plan.run.speeches if speech.opened), None)
    if entry is None:
        entry = _next_speech(plan, at_rest)
        if entry is None:
            return False
        _open(plan, entry)
        if not entry.said:
            return True
    if not entry.said:
        return False
    scope = plan.scope(entry.scope)
    node = plan.canvas.nodes[entry.number]
    place = entry.place
    assert place is not None  # a text that is whole has been activated
    plan.emit(Event(MESSAGE_END, dict(entry.end), entry.turn, node.id))
    _close(plan, entry)
    plan.decision.moved[entry.turn] = Status.DONE
    plan.unalive(node, scope)
    plan.emit_finished(entry.turn, node.id, entry.error)
    plan.reach(node, node.downstream, scope, place)
    return True


def _next_speech(plan: Plan, at_rest: bool) -> Speech | None:
    known = [(place, speech) for speech in plan.run.speeches if (place := _place_of(plan, speech)) is not None]
    if not known:
        return None
    if not plan.canvas.orders_speech:
        return known[0][1]
    for place, speech in sorted(known, key=lambda pair: pair[0].key):
        if at_rest and speech.said:
            return speech
        if not at_rest and not _is_preceded(plan, speech, place):
            return speech
    return None


def _place_of(plan: Plan, speech: Speech) -> Place | None:
    """Where a Message stands or will stand; None while something besides its one speaker can still reach it."""
    if speech.place is not None:
        return speech.place
    scope = plan.run.scopes.get(speech.scope)
    if scope is None:
        return None
    if not plan.canvas.orders_speech:
        return Place(0)
    above = plan.canvas.reach.above[speech.number]
    comers = (scope.alive | _reached(scope)) & above
    if comers.bit_count() > 1:
        return None
    place = scope.reached.get(speech.number)
    for number in bits(comers):
        speaker = plan.canvas.nodes[number]
        if speech.number not in speaker.downstream or number not in scope.places:
            return None
        place = merged(place, scope.places[number].step(speaker.downstream.index(speech.number)))
    return place


def _is_preceded(plan: Plan, speech: Speech, place: Place) -> bool:
    """Whether a Message with an earlier place can still come while what is still stays still."""
    for other in plan.run.speeches:
        if other is not speech and other.place is not None and other.place < place and not _is_still(plan, other):
            return True
    return any(_precedes_in(plan, scope, speech, place) for scope in list(plan.run.scopes.values()))


def _is_still(plan: Plan, speech: Speech) -> bool:
    scope = plan.run.scopes.get(speech.scope)
    return scope is None or bool(scope.still >> speech.number & 1)


def _precedes_in(plan: Plan, scope: Scope, speech: Speech, place: Place) -> bool:
    canvas = plan.canvas
    here = speech.scope == scope.key
    movers = (scope.alive & ~scope.still) | _reached(scope)
    messages = canvas.messages & ~(1 << speech.number if here else 0)
    for number in bits(messages):
        above = canvas.reach.above[number] | 1 << number
        if not movers & above or scope.still & canvas.reach.above[number]:
            continue
        for mover in bits(movers & above):
            earliest = _earliest(plan, scope, mover, number, place)
            if earliest is not None and earliest < place:
                return True
    return any(
        _body_precedes(plan, scope, number, place) for number in scope.containers if not scope.still >> number & 1
    )


def _body_precedes(plan: Plan, scope: Scope, number: int, place: Place) -> bool:
    """Whether a later pass of a container's body can bring a Message before a place."""
    if not any(number in plan.canvas.containers_of(message) for message in bits(plan.canvas.messages)):
        return False
    container = scope.containers[number]
    if container.side_by_side:
        return Place(0, (), container.place.inside(container.next)) < place and container.next < (container.count or 0)
    return Place(_wave_inside(plan, scope, number) + 1, container.place.trail, scope.region) < place


def _wave_inside(plan: Plan, scope: Scope, number: int) -> int:
    container = scope.containers[number]
    inner = plan.run.scopes.get((*scope.key, (plan.canvas.nodes[number].id, container.ordinal, container.next - 1)))
    return max(container.place.wave, inner.last_wave if inner is not None else 0)


def _earliest(plan: Plan, scope: Scope, mover: int, message: int, limit: Place) -> Place | None:
    """A lower bound for the place of a Message below a node that moves; None if it lies beyond `limit`."""
    start = scope.places.get(mover) or scope.reached.get(mover)
    if start is None:
        return None
    wave = start.wave
    container = scope.containers.get(mover)
    if container is not None and not container.side_by_side:
        wave = _wave_inside(plan, scope, mover)
    frontier, seen = 1 << mover, 1 << mover
    while not frontier >> message & 1:
        wave += 1
        following = 0
        for number in bits(frontier):
            for step in plan.canvas.reach.steps[number]:
                following |= 1 << step
        frontier = following & ~seen
        seen |= following
        if not frontier or (wave > limit.wave and start.region == limit.region):
            return None
    return start if wave == start.wave else Place(wave, start.trail, start.region)


def _entry(plan: Plan, scope: Scope, message: Node) -> Speech:
    return _entry_for(plan, plan.next_id(message, scope), message, scope)


def _entry_for(plan: Plan, turn: UUID, node: Node, scope: Scope) -> Speech:
    entry = _find(plan, turn)
    if entry is None:
        entry = Speech(turn, node.number, scope.key)
        plan.run.speeches.append(entry)
    return entry


def _find(plan: Plan, turn: UUID | None) -> Speech | None:
    return next((speech for speech in plan.run.speeches if speech.turn == turn), None)


def _open(plan: Plan, entry: Speech) -> None:
    node = plan.canvas.nodes[entry.number]
    if plan.canvas.messages & node.bit:
        plan.emit(Event(NODE_STARTED, activation=entry.turn, node_id=node.id))
    entry.opened = True
    plan.run.turn = entry.turn
    plan.decision.opened[entry.turn] = plan.event_count


def _close(plan: Plan, entry: Speech) -> None:
    for held in sorted(entry.held, key=lambda held: held.key):
        plan.emit_finished(held.activation, held.node_id, held.error)
    plan.run.speeches.remove(entry)
    plan.run.turn = None
    plan.decision.closed[entry.turn] = plan.event_count


def _reset(plan: Plan, turn: UUID) -> None:
    entry = _find(plan, turn)
    if entry is not None and entry.opened:
        plan.emit(Event(MESSAGE_RESET, {"turn": str(turn)}, turn))
    plan.decision.taken_back[turn] = plan.event_count


def _reached(scope: Scope) -> int:
    mask = 0
    for number in scope.reached:
        mask |= 1 << number
    return mask


def release_all(plan: Plan) -> None:
    """The run ends early: whole texts of earlier waves are heard, and what else was held is let go."""
    for entry in sorted(plan.run.speeches, key=lambda speech: speech.place.key if speech.place else b"\xff"):
        heard = entry.said and entry.place is not None and not plan.is_too_late(entry.place)
        if heard and not entry.opened:
            _open(plan, entry)
        if heard:
            plan.emit(Event(MESSAGE_END, dict(entry.end), entry.turn, plan.canvas.nodes[entry.number].id))
        was_opened = entry.opened
        turn = entry.turn
        _close(plan, entry)
        if not was_opened:
            del plan.decision.closed[turn]
        if heard:
            plan.decision.moved[turn] = Status.DONE
            plan.emit_finished(turn, plan.canvas.nodes[entry.number].id, entry.error)
