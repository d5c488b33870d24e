"""Message streams: which node writes to which stream, and when a stream opens and closes.

Writers never wait; readers order (docs/protocol.md#message-streams). A model node writes to the stream of the Message
after it. A stream *opens* when no other is open and no text with an earlier order key can still come while everything
idle stays idle (`canvas/routing/stream_order.py`); so the writer of the open stream is never idle. Opening appends the
Message's `node_started`; closing appends `message_end`, the deferred `node_finished` of the writers, and the Message's
own.
"""

from canvas.events.run_events import MESSAGE_END, Event
from canvas.graph.canvas import Node, NodeKind, bits, mask_of
from canvas.ids import ActivationId
from canvas.outcome import Finished
from canvas.routing import stream_order
from canvas.routing.decision_builder import DecisionBuilder
from canvas.state.order_key import OrderKey
from canvas.state.run_state import ActivationStatus, DeferredNodeFinished, Report, Scope, ScopeKey


def stream_for(builder: DecisionBuilder, scope: Scope, node: Node) -> ActivationId | None:
    """Return the stream that a node about to be activated writes to; None if its text is not streamed.

    A Message and an Answer have their own stream. A model node writes to its Message's stream, unless something that
    the Message's text refers to before this node is still to come.
    """
    if node.kind.has_stream:
        return builder.activations.next_id(node, scope)
    target = builder.canvas.stream_targets.get(node.number)
    if target is None or builder.canvas.uncalled_models & node.bit:
        return None
    pending = scope.active | mask_of(scope.reached)
    above = builder.canvas.reachability.above
    if any(pending & (above[number] | 1 << number) for number in bits(target.mentioned_before)):
        return None
    return builder.streams.of_next_activation(builder.canvas.nodes[target.message], scope).stream_id


def record_message_key(builder: DecisionBuilder, scope: Scope, message: Node, order_key: OrderKey) -> None:
    """Record the order key of a Message that is about to be activated in its stream."""
    builder.streams.of_next_activation(message, scope).order_key = order_key


def defer_node_finished(builder: DecisionBuilder, report: Report) -> bool:
    """Defer the `node_finished` of a node that writes to a Message's stream; return whether the node is one."""
    number = builder.canvas.numbers[report.node_id]
    target = builder.canvas.stream_targets.get(number)
    if target is None or builder.canvas.uncalled_models >> number & 1:
        return False
    stream = builder.streams.of_next_activation(builder.canvas.nodes[target.message], builder.scopes.get(report.scope))
    stream.deferred_finished.append(
        DeferredNodeFinished(report.activation, report.node_id, report.error, report.order_key.key.hex())
    )
    return True


def on_message_text(builder: DecisionBuilder, report: Report, outcome: Finished) -> None:
    """Record that a Message's text is complete; the Message stays active until its stream has opened and closed."""
    scope = builder.scopes.get(report.scope)
    node = builder.canvas.node(report.node_id)
    stream = builder.streams.get_or_add(report.activation, node, scope)
    stream.is_complete, stream.order_key = True, report.order_key
    end = outcome.end
    if end is not None:
        members = {
            "status": end.status,
            "attachment": end.attachment,
            "downloads": list(end.downloads),
            "reference": end.reference,
        }
        stream.end = {name: value for name, value in members.items() if value}
    if report.restarts_text:
        builder.streams.truncate(stream)
    builder.decision.new_statuses[report.activation] = ActivationStatus.AWAITING_STREAM
    builder.activations.mark_idle(node, scope)


def on_answer_text(builder: DecisionBuilder, report: Report) -> None:
    """Record the complete text that an Answer shows before it waits for a person."""
    node = builder.canvas.node(report.node_id)
    stream = builder.streams.get_or_add(report.activation, node, builder.scopes.get(report.scope))
    stream.is_complete, stream.order_key = True, report.order_key
    stream.has_started = builder.run.forms[report.activation].has_started
    if report.restarts_text:
        builder.streams.truncate(stream)


def stream_default(builder: DecisionBuilder, report: Report, error: str, text: str) -> None:
    """Stream the default value of a failed node, before its `node_finished`.

    A failed Message streams it in its own stream. The default of another node gets a stream before the one of the
    node's Message; if that one is open for the node, it is paused until then.
    """
    scope = builder.scopes.get(report.scope)
    node = builder.canvas.node(report.node_id)
    target = builder.canvas.stream_targets.get(node.number)
    before = None
    if target is not None:
        before = builder.streams.find(builder.activations.next_id(builder.canvas.nodes[target.message], scope))
    if before is not None and report.stream_id == before.stream_id and (report.has_written or report.crash_count):
        builder.streams.truncate(before)
    if before is not None:
        builder.streams.pause(before)
    stream = builder.streams.get_or_add(report.activation, node, scope)
    if node.kind is NodeKind.MESSAGE and (report.has_written or report.crash_count):
        builder.streams.truncate(stream)
    stream.is_complete, stream.order_key, stream.error = True, report.order_key, error
    builder.decision.default_texts[report.activation] = (node.id, text)
    builder.decision.new_statuses[report.activation] = ActivationStatus.AWAITING_STREAM
    builder.activations.mark_idle(node, scope)


def truncate_stream(builder: DecisionBuilder, report: Report) -> None:
    """Truncate the stream of a lost attempt, before the next attempt writes to it."""
    stream = builder.streams.find(report.stream_id) if report.stream_id else None
    if stream is not None and not stream.is_complete:
        builder.streams.truncate(stream)


def close_until_resumed(builder: DecisionBuilder, report: Report) -> None:
    """Truncate and pause the stream of a lost attempt that has no next attempt for now."""
    truncate_stream(builder, report)
    stream = builder.streams.find(report.stream_id) if report.stream_id else None
    if stream is not None and not stream.is_complete:
        builder.streams.pause(stream)


def on_message_failed(builder: DecisionBuilder, report: Report, error: str) -> None:
    """Record that the text of a failed Message is complete as it stands."""
    scope = builder.scopes.get(report.scope)
    node = builder.canvas.node(report.node_id)
    stream = builder.streams.get_or_add(report.activation, node, scope)
    stream.is_complete, stream.order_key, stream.error = True, report.order_key, error
    builder.decision.new_statuses[report.activation] = ActivationStatus.AWAITING_STREAM
    builder.activations.mark_idle(node, scope)


def close_cancelled(builder: DecisionBuilder, report: Report) -> bool:
    """Close the stream of a cancelled Message; return whether its `node_started` had been emitted."""
    stream = builder.streams.find(report.activation)
    if stream is None or not stream.has_started:
        return False
    builder.streams.close(stream)
    return True


def close_streams_of(builder: DecisionBuilder, key: ScopeKey) -> None:
    """Close the streams of a pass that has ended, and emit the events that they deferred."""
    for stream in [stream for stream in builder.run.streams if stream.scope == key]:
        builder.streams.close(stream)


def open_next_stream(builder: DecisionBuilder, *, at_rest: bool) -> bool:
    """Open the next stream if it may open, and close the open stream if its text is complete.

    Returns whether anything changed. `at_rest`: everything in the run is idle, so streams with a complete text open in
    the order of their keys, whatever may come later. A stream that is open and incomplete then has lost its Message to
    the failure of a parallel item, and closes as it is.
    """
    stream = next((stream for stream in builder.run.streams if stream.is_open), None)
    is_next = stream is None
    if stream is None:
        stream = stream_order.next_stream(builder, at_rest=at_rest)
        if stream is None:
            return False
        builder.streams.open(stream)
    if not stream.is_complete:
        if at_rest:
            builder.streams.close(stream)
        return at_rest or is_next
    node = builder.canvas.nodes[stream.number]
    order_key = stream.order_key
    assert order_key is not None  # a Message with a complete text has been activated
    builder.emit(Event(MESSAGE_END, dict(stream.end), stream.stream_id, node.id))
    builder.streams.close(stream, has_ended=True)
    if stream.stream_id in builder.run.forms:
        return True  # an Answer: it continues when it is answered
    builder.decision.new_statuses[stream.stream_id] = ActivationStatus.DONE
    scope = builder.scopes.get(stream.scope)
    builder.activations.deactivate(node, scope)
    builder.activations.emit_finished(stream.stream_id, node.id, stream.error)
    targets = node.downstream if stream.error is None or node.failure.streams_default else node.failure.goto
    if stream.error is not None and node.is_router and node.failure.streams_default:
        targets = ()  # a default value does not choose a branch
    builder.follow_edges(node, targets, scope, order_key)
    return True


def flush_finished_streams(builder: DecisionBuilder) -> None:
    """Close all streams of a run that ends early: complete texts from before its failure are streamed.

    Other streams close without a text. The events that streams deferred are emitted.
    """
    streams = sorted(builder.run.streams, key=lambda stream: stream.order_key.key if stream.order_key else b"")
    for stream in sorted(streams, key=lambda stream: not stream.is_open):
        node_id = builder.canvas.nodes[stream.number].id
        is_shown = (
            stream.is_complete and stream.order_key is not None and not builder.run_ended_before(stream.order_key)
        )
        if is_shown:
            builder.streams.open(stream)
            builder.emit(Event(MESSAGE_END, dict(stream.end), stream.stream_id, node_id))
        builder.streams.close(stream, has_ended=is_shown)
        if is_shown and stream.stream_id not in builder.run.forms:
            builder.decision.new_statuses[stream.stream_id] = ActivationStatus.DONE
            builder.activations.emit_finished(stream.stream_id, node_id, stream.error)
