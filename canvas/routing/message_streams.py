"""Whose text the user hears while it is made, and in which turn (engine 4.8, protocol "Speech").

Speakers never wait; readers order. A model node speaks in the turn of the Message after it. A turn *opens* when no
other is open and no text with an earlier place can still come while everything that is still stays still
(`canvas/routing/stream_order.py`); so what holds a turn always moves. Opening writes the Message's `node_started`;
closing writes `message_end`, the held `node_finished` of the speakers, and the Message's own.
"""

from uuid import UUID

from canvas.events.run_events import MESSAGE_END, MESSAGE_RESET, NODE_STARTED, Event
from canvas.graph.canvas import Node, NodeKind, bits, mask_of
from canvas.outcome import Finished
from canvas.routing import stream_order
from canvas.routing.decision import DecisionBuilder
from canvas.state.order_key import OrderKey
from canvas.state.run_state import DeferredNodeFinished, MessageStreamState, Report, Scope, ScopeKey, Status


def stream_for(plan: DecisionBuilder, scope: Scope, node: Node) -> UUID | None:
    """The turn a node speaks in that is about to be activated; None where nobody hears it live.

    A Message and an Answer speak in their own. A model node speaks in its Message's unless something that the
    Message's text mentions before it is still to come.
    """
    if node.kind.has_turn:
        return plan.next_id(node, scope)
    turn = plan.canvas.turns.get(node.number)
    if turn is None or plan.canvas.unheard & node.bit:
        return None
    moving = scope.alive | mask_of(scope.reached)
    above = plan.canvas.reach.above
    if any(moving & (above[number] | 1 << number) for number in bits(turn.mentioned_before)):
        return None
    return _entry(plan, scope, plan.canvas.nodes[turn.message]).turn


def message_activated(plan: DecisionBuilder, scope: Scope, message: Node, place: OrderKey) -> None:
    """A Message is about to be activated: its place is known from here on."""
    _entry(plan, scope, message).place = place


def defer_node_finished(plan: DecisionBuilder, report: Report) -> bool:
    """Keep a speaker's `node_finished` until its Message has ended; whether there is a Message to wait for."""
    number = plan.canvas.numbers[report.node_id]
    turn = plan.canvas.turns.get(number)
    if turn is None or plan.canvas.unheard >> number & 1:
        return False
    entry = _entry(plan, plan.scope(report.scope), plan.canvas.nodes[turn.message])
    entry.held.append(DeferredNodeFinished(report.activation, report.node_id, report.error, report.place.key.hex()))
    return True


def on_message_text(plan: DecisionBuilder, report: Report, outcome: Finished) -> None:
    """A Message's whole text is there; it is alive until its turn has come."""
    scope = plan.scope(report.scope)
    node = plan.canvas.node(report.node_id)
    entry = _entry_for(plan, report.activation, node, scope)
    entry.said, entry.place = True, report.place
    end = outcome.end
    if end is not None:
        members = {
            "status": end.status,
            "attachment": end.attachment,
            "downloads": list(end.downloads),
            "reference": end.reference,
        }
        entry.end = {name: value for name, value in members.items() if value}
    if report.retake:
        _take_back(plan, entry)
    plan.decision.moved[report.activation] = Status.SAYING
    plan.hold(node, scope)


def answer_said(plan: DecisionBuilder, report: Report) -> None:
    """An Answer waits for a person, and has something to say before that; its turn is there for the text alone."""
    node = plan.canvas.node(report.node_id)
    entry = _entry_for(plan, report.activation, node, plan.scope(report.scope))
    entry.said, entry.place = True, report.place
    entry.started = plan.run.forms[report.activation].started
    if report.retake:
        _take_back(plan, entry)


def stream_default(plan: DecisionBuilder, report: Report, error: str, text: str) -> None:
    """A failed node's default value is heard in a turn of its own, before its `node_finished`.

    A failed Message says it in its own turn. A failed speaker's comes before its Message's turn, which is shut until
    then if it stood open for the speaker.
    """
    scope = plan.scope(report.scope)
    node = plan.canvas.node(report.node_id)
    turn = plan.canvas.turns.get(node.number)
    before = _find(plan, plan.next_id(plan.canvas.nodes[turn.message], scope)) if turn is not None else None
    if before is not None and report.turn == before.turn and (report.spoke or report.strikes):
        _take_back(plan, before)
    if before is not None:
        _shut(plan, before)
    entry = _entry_for(plan, report.activation, node, scope)
    if node.kind is NodeKind.MESSAGE and (report.spoke or report.strikes):
        _take_back(plan, entry)
    entry.said, entry.place, entry.error = True, report.place, error
    plan.decision.texts[report.activation] = (node.id, text)
    plan.decision.moved[report.activation] = Status.SAYING
    plan.hold(node, scope)


def truncate_stream(plan: DecisionBuilder, report: Report) -> None:
    """A speaker's attempt is lost: what it said in its turn is cut before the next attempt speaks."""
    entry = _find(plan, report.turn) if report.turn else None
    if entry is not None and not entry.said:
        _take_back(plan, entry)


def close_until_resumed(plan: DecisionBuilder, report: Report) -> None:
    """A speaker's attempt is lost and nobody speaks for now: its words are cut, and its turn opens anew later."""
    truncate_stream(plan, report)
    entry = _find(plan, report.turn) if report.turn else None
    if entry is not None and not entry.said:
        _shut(plan, entry)


def message_failed(plan: DecisionBuilder, report: Report, error: str) -> None:
    """A failed Message says no more: when its turn has come, it ends where it is."""
    scope = plan.scope(report.scope)
    node = plan.canvas.node(report.node_id)
    entry = _entry_for(plan, report.activation, node, scope)
    entry.said, entry.place, entry.error = True, report.place, error
    plan.decision.moved[report.activation] = Status.SAYING
    plan.hold(node, scope)


def stop(plan: DecisionBuilder, report: Report) -> bool:
    """A cancelled Message ends where it is; whether anybody had heard of it."""
    entry = _find(plan, report.activation)
    if entry is None or not entry.started:
        return False
    _close(plan, entry)
    return True


def close_streams_of(plan: DecisionBuilder, key: ScopeKey) -> None:
    """A pass is over: a Message that was to come in it will not, and what it held is let go."""
    for entry in [entry for entry in plan.run.speeches if entry.scope == key]:
        _close(plan, entry)


def open_turns(plan: DecisionBuilder, *, at_rest: bool) -> bool:
    """Open the next turn if its time has come, and close it if no more comes; whether anything changed.

    `at_rest`: nothing in the run moves any more, so finished turns open in order of place whatever may come later. A
    turn that is open then has lost its Message to the failure of a side-by-side item, and ends where it is.
    """
    entry = next((entry for entry in plan.run.speeches if entry.opened), None)
    is_next = entry is None
    if entry is None:
        entry = stream_order.next_stream(plan, at_rest=at_rest)
        if entry is None:
            return False
        _open(plan, entry)
    if not entry.said:
        if at_rest:
            _close(plan, entry)
        return at_rest or is_next
    node = plan.canvas.nodes[entry.number]
    place = entry.place
    assert place is not None  # a text that is whole has been activated
    plan.emit(Event(MESSAGE_END, dict(entry.end), entry.turn, node.id))
    _close(plan, entry, has_ended=True)
    if entry.turn in plan.run.forms:
        return True  # an Answer: it goes on when it is answered
    plan.decision.moved[entry.turn] = Status.DONE
    scope = plan.scope(entry.scope)
    plan.unalive(node, scope)
    plan.emit_finished(entry.turn, node.id, entry.error)
    targets = node.downstream if entry.error is None or node.failure.is_heard else node.failure.goto
    if entry.error is not None and node.chooses and node.failure.is_heard:
        targets = ()  # a default says nothing about the way (components 1.6)
    plan.reach(node, targets, scope, place)
    return True


def flush_finished_streams(plan: DecisionBuilder) -> None:
    """The run ends early: whole texts of earlier waves are heard, and what else was held is let go."""
    entries = sorted(plan.run.speeches, key=lambda entry: entry.place.key if entry.place else b"")
    for entry in sorted(entries, key=lambda entry: not entry.opened):
        node_id = plan.canvas.nodes[entry.number].id
        is_heard = entry.said and entry.place is not None and not plan.is_too_late(entry.place)
        if is_heard:
            _open(plan, entry)
            plan.emit(Event(MESSAGE_END, dict(entry.end), entry.turn, node_id))
        _close(plan, entry, has_ended=is_heard)
        if is_heard and entry.turn not in plan.run.forms:
            plan.decision.moved[entry.turn] = Status.DONE
            plan.emit_finished(entry.turn, node_id, entry.error)


def _entry(plan: DecisionBuilder, scope: Scope, message: Node) -> MessageStreamState:
    return _entry_for(plan, plan.next_id(message, scope), message, scope)


def _entry_for(plan: DecisionBuilder, turn: UUID, node: Node, scope: Scope) -> MessageStreamState:
    entry = _find(plan, turn)
    if entry is None:
        # The `node_started` of a node that only its default value makes speak is out long since.
        entry = MessageStreamState(turn, node.number, scope.key, started=node.kind is not NodeKind.MESSAGE)
        plan.run.speeches.append(entry)
    return entry


def _find(plan: DecisionBuilder, turn: UUID | None) -> MessageStreamState | None:
    return next((entry for entry in plan.run.speeches if entry.turn == turn), None)


def _start(plan: DecisionBuilder, entry: MessageStreamState) -> None:
    if not entry.started:
        plan.emit(Event(NODE_STARTED, activation=entry.turn, node_id=plan.canvas.nodes[entry.number].id))
        entry.started = True
        if entry.turn in plan.run.forms:
            plan.run.forms[entry.turn].started = True


def _open(plan: DecisionBuilder, entry: MessageStreamState) -> None:
    _start(plan, entry)
    if not entry.opened:
        entry.opened = True
        plan.run.turn = entry.turn
        plan.decision.closed.pop(entry.turn, None)
        plan.decision.opened[entry.turn] = plan.event_count


def _shut(plan: DecisionBuilder, entry: MessageStreamState) -> None:
    """An open turn waits for its text again, until it is opened anew."""
    if entry.opened:
        entry.opened = False
        plan.run.turn = None
        plan.decision.closed[entry.turn] = plan.event_count + 1


def _close(plan: DecisionBuilder, entry: MessageStreamState, *, has_ended: bool = False) -> None:
    """End a turn. Its text stands before its `message_end`, or before the next event where it has none."""
    if entry.opened:
        plan.run.turn = None
        plan.decision.closed[entry.turn] = plan.event_count if has_ended else plan.event_count + 1
    for held in sorted(entry.held, key=lambda held: held.key):
        plan.emit_finished(held.activation, held.node_id, held.error)
    plan.run.speeches.remove(entry)


def _take_back(plan: DecisionBuilder, entry: MessageStreamState) -> None:
    """What was said in a turn is cut; those who heard it are told."""
    if entry.opened:
        plan.emit(Event(MESSAGE_RESET, {"turn": str(entry.turn)}, entry.turn))
    plan.decision.taken_back[entry.turn] = plan.event_count
