"""Whose text the user hears while it is made, and in which turn (engine 4.8, protocol "Speech").

Speakers never wait; readers order. A model node speaks in the turn of the Message after it. A turn *opens* when no
other is open and no text with an earlier place can still come while everything that is still stays still
(`canvas/routing/stream_order.py`); so what holds a turn always moves. Opening writes the Message's `node_started`;
closing writes `message_end`, the held `node_finished` of the speakers, and the Message's own.
"""

from uuid import UUID

from canvas.events.run_events import MESSAGE_END, Event
from canvas.graph.canvas import Node, NodeKind, bits, mask_of
from canvas.outcome import Finished
from canvas.routing import stream_order
from canvas.routing.decision_builder import DecisionBuilder
from canvas.state.order_key import OrderKey
from canvas.state.run_state import DeferredNodeFinished, Report, Scope, ScopeKey, Status


def stream_for(builder: DecisionBuilder, scope: Scope, node: Node) -> UUID | None:
    """The turn a node speaks in that is about to be activated; None where nobody hears it live.

    A Message and an Answer speak in their own. A model node speaks in its Message's unless something that the
    Message's text mentions before it is still to come.
    """
    if node.kind.has_turn:
        return builder.activations.next_id(node, scope)
    turn = builder.canvas.turns.get(node.number)
    if turn is None or builder.canvas.unheard & node.bit:
        return None
    moving = scope.alive | mask_of(scope.reached)
    above = builder.canvas.reach.above
    if any(moving & (above[number] | 1 << number) for number in bits(turn.mentioned_before)):
        return None
    return builder.streams.of_next_activation(builder.canvas.nodes[turn.message], scope).turn


def message_activated(builder: DecisionBuilder, scope: Scope, message: Node, place: OrderKey) -> None:
    """A Message is about to be activated: its place is known from here on."""
    builder.streams.of_next_activation(message, scope).place = place


def defer_node_finished(builder: DecisionBuilder, report: Report) -> bool:
    """Keep a speaker's `node_finished` until its Message has ended; whether there is a Message to wait for."""
    number = builder.canvas.numbers[report.node_id]
    turn = builder.canvas.turns.get(number)
    if turn is None or builder.canvas.unheard >> number & 1:
        return False
    entry = builder.streams.of_next_activation(builder.canvas.nodes[turn.message], builder.scopes.get(report.scope))
    entry.held.append(DeferredNodeFinished(report.activation, report.node_id, report.error, report.place.key.hex()))
    return True


def on_message_text(builder: DecisionBuilder, report: Report, outcome: Finished) -> None:
    """A Message's whole text is there; it is alive until its turn has come."""
    scope = builder.scopes.get(report.scope)
    node = builder.canvas.node(report.node_id)
    entry = builder.streams.get_or_add(report.activation, node, scope)
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
        builder.streams.truncate(entry)
    builder.decision.moved[report.activation] = Status.SAYING
    builder.activations.mark_idle(node, scope)


def answer_said(builder: DecisionBuilder, report: Report) -> None:
    """An Answer waits for a person, and has something to say before that; its turn is there for the text alone."""
    node = builder.canvas.node(report.node_id)
    entry = builder.streams.get_or_add(report.activation, node, builder.scopes.get(report.scope))
    entry.said, entry.place = True, report.place
    entry.started = builder.run.forms[report.activation].started
    if report.retake:
        builder.streams.truncate(entry)


def stream_default(builder: DecisionBuilder, report: Report, error: str, text: str) -> None:
    """A failed node's default value is heard in a turn of its own, before its `node_finished`.

    A failed Message says it in its own turn. A failed speaker's comes before its Message's turn, which is shut until
    then if it stood open for the speaker.
    """
    scope = builder.scopes.get(report.scope)
    node = builder.canvas.node(report.node_id)
    turn = builder.canvas.turns.get(node.number)
    before = (
        builder.streams.find(builder.activations.next_id(builder.canvas.nodes[turn.message], scope))
        if turn is not None
        else None
    )
    if before is not None and report.turn == before.turn and (report.spoke or report.strikes):
        builder.streams.truncate(before)
    if before is not None:
        builder.streams.pause(before)
    entry = builder.streams.get_or_add(report.activation, node, scope)
    if node.kind is NodeKind.MESSAGE and (report.spoke or report.strikes):
        builder.streams.truncate(entry)
    entry.said, entry.place, entry.error = True, report.place, error
    builder.decision.texts[report.activation] = (node.id, text)
    builder.decision.moved[report.activation] = Status.SAYING
    builder.activations.mark_idle(node, scope)


def truncate_stream(builder: DecisionBuilder, report: Report) -> None:
    """A speaker's attempt is lost: what it said in its turn is cut before the next attempt speaks."""
    entry = builder.streams.find(report.turn) if report.turn else None
    if entry is not None and not entry.said:
        builder.streams.truncate(entry)


def close_until_resumed(builder: DecisionBuilder, report: Report) -> None:
    """A speaker's attempt is lost and nobody speaks for now: its words are cut, and its turn opens anew later."""
    truncate_stream(builder, report)
    entry = builder.streams.find(report.turn) if report.turn else None
    if entry is not None and not entry.said:
        builder.streams.pause(entry)


def message_failed(builder: DecisionBuilder, report: Report, error: str) -> None:
    """A failed Message says no more: when its turn has come, it ends where it is."""
    scope = builder.scopes.get(report.scope)
    node = builder.canvas.node(report.node_id)
    entry = builder.streams.get_or_add(report.activation, node, scope)
    entry.said, entry.place, entry.error = True, report.place, error
    builder.decision.moved[report.activation] = Status.SAYING
    builder.activations.mark_idle(node, scope)


def stop(builder: DecisionBuilder, report: Report) -> bool:
    """A cancelled Message ends where it is; whether anybody had heard of it."""
    entry = builder.streams.find(report.activation)
    if entry is None or not entry.started:
        return False
    builder.streams.close(entry)
    return True


def close_streams_of(builder: DecisionBuilder, key: ScopeKey) -> None:
    """A pass is over: a Message that was to come in it will not, and what it held is let go."""
    for entry in [entry for entry in builder.run.speeches if entry.scope == key]:
        builder.streams.close(entry)


def open_turns(builder: DecisionBuilder, *, at_rest: bool) -> bool:
    """Open the next turn if its time has come, and close it if no more comes; whether anything changed.

    `at_rest`: nothing in the run moves any more, so finished turns open in order of place whatever may come later. A
    turn that is open then has lost its Message to the failure of a side-by-side item, and ends where it is.
    """
    entry = next((entry for entry in builder.run.speeches if entry.opened), None)
    is_next = entry is None
    if entry is None:
        entry = stream_order.next_stream(builder, at_rest=at_rest)
        if entry is None:
            return False
        builder.streams.open(entry)
    if not entry.said:
        if at_rest:
            builder.streams.close(entry)
        return at_rest or is_next
    node = builder.canvas.nodes[entry.number]
    place = entry.place
    assert place is not None  # a text that is whole has been activated
    builder.emit(Event(MESSAGE_END, dict(entry.end), entry.turn, node.id))
    builder.streams.close(entry, has_ended=True)
    if entry.turn in builder.run.forms:
        return True  # an Answer: it goes on when it is answered
    builder.decision.moved[entry.turn] = Status.DONE
    scope = builder.scopes.get(entry.scope)
    builder.activations.deactivate(node, scope)
    builder.activations.emit_finished(entry.turn, node.id, entry.error)
    targets = node.downstream if entry.error is None or node.failure.is_heard else node.failure.goto
    if entry.error is not None and node.chooses and node.failure.is_heard:
        targets = ()  # a default says nothing about the way (components 1.6)
    builder.follow_edges(node, targets, scope, place)
    return True


def flush_finished_streams(builder: DecisionBuilder) -> None:
    """The run ends early: whole texts of earlier waves are heard, and what else was held is let go."""
    entries = sorted(builder.run.speeches, key=lambda entry: entry.place.key if entry.place else b"")
    for entry in sorted(entries, key=lambda entry: not entry.opened):
        node_id = builder.canvas.nodes[entry.number].id
        is_heard = entry.said and entry.place is not None and not builder.run_ended_before(entry.place)
        if is_heard:
            builder.streams.open(entry)
            builder.emit(Event(MESSAGE_END, dict(entry.end), entry.turn, node_id))
        builder.streams.close(entry, has_ended=is_heard)
        if is_heard and entry.turn not in builder.run.forms:
            builder.decision.moved[entry.turn] = Status.DONE
            builder.activations.emit_finished(entry.turn, node_id, entry.error)
