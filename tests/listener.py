"""Check the events of a run for what a client may rely on (engine 4.8, 5.3)."""

from collections.abc import Mapping
from uuid import UUID

from canvas.events.run_events import (
    MESSAGE_END,
    NODE_FINISHED,
    NODE_STARTED,
    RUN_FAILED,
    WORKFLOW_FINISHED,
    WORKFLOW_STARTED,
    Event,
)
from canvas.outcome import Failed
from canvas.state.run_state import RunStatus, activation_id
from tests.builders import RUN_ID
from tests.player import Player, Row


def check_events(player: Player) -> None:
    """Check the events of a run that is over."""
    names = [event.name for event in player.events]
    assert names[0] == WORKFLOW_STARTED
    assert names.count(WORKFLOW_STARTED) == 1
    assert names[-1] == (RUN_FAILED if player.status is RunStatus.FAILED else WORKFLOW_FINISHED)
    assert names.count(RUN_FAILED) + names.count(WORKFLOW_FINISHED) == 1
    started: dict[UUID, int] = {}
    ended: dict[UUID, int] = {}
    finished: dict[UUID, int] = {}
    for number, event in enumerate(player.events):
        numbers = {NODE_STARTED: started, MESSAGE_END: ended, NODE_FINISHED: finished}.get(event.name)
        if numbers is not None:
            activation = _subject(player, event)
            assert activation not in numbers, f"{event.name} of {event.node_id} comes twice"
            numbers[activation] = number
    for activation, number in finished.items():
        assert started[activation] < ended.get(activation, number - 1) < number or activation not in ended
        assert started[activation] < number
    for stream_id, number in player.opened_at.items():
        assert started[stream_id] < number <= ended.get(stream_id, len(player.events))
    if player.status is RunStatus.SUCCEEDED:
        unfinished = {row.id for row in player.rows.values() if _failed_before_its_body(player, row)}
        # Messages announced by a writer in an item that failed before they were activated.
        announced = started.keys() - player.rows.keys()
        assert announced <= player.opened_at.keys()
        assert started.keys() - announced == finished.keys() | unfinished == player.rows.keys()
    _check_deferred(player, ended, finished)
    _check_containers(player, started, finished)


def _failed_before_its_body(player: Player, row: Row) -> bool:
    """Whether a row is a container without a `node_finished` event, because it failed before its body started."""
    is_container = player.canvas.node(row.node).kind.is_container
    return is_container and isinstance(row.outcome, Failed) and row.id not in player.ended_streams


def _subject(player: Player, event: Event) -> UUID:
    """Return the activation of an event: a container's `node_finished` names the visit that wrote its outputs."""
    assert event.activation is not None
    row = player.rows.get(event.activation)
    if row is None or row.node == event.node_id:
        return event.activation  # a writer may have announced a Message that was never activated
    node, ordinal, _ = row.scope[-1]
    assert node == event.node_id
    return activation_id(RUN_ID, node, row.scope[:-1], ordinal)


def _check_deferred(player: Player, ended: Mapping[UUID, int], finished: Mapping[UUID, int]) -> None:
    """Check that a writer's `node_finished` comes between its Message's `message_end` and `node_finished`.

    Canvases with cycles are skipped: events do not show which visits of Message and writer belong together.
    """
    if player.canvas.reachability.back:
        return
    for row in player.rows.values():
        target = player.canvas.stream_targets.get(player.canvas.numbers[row.node])
        is_deferred = target is not None and not player.canvas.uncalled_models & player.canvas.node(row.node).bit
        if target is None or not is_deferred or isinstance(row.outcome, Failed) or row.id not in finished:
            continue
        message = player.canvas.nodes[target.message].id
        ends = [
            (ended[other.id], finished[other.id])
            for other in player.rows.values()
            if other.node == message and other.scope == row.scope and other.id in ended and other.id in finished
        ]
        assert not ends or any(end < finished[row.id] < own for end, own in ends)


def _check_containers(player: Player, started: Mapping[UUID, int], finished: Mapping[UUID, int]) -> None:
    """Check that a container starts before everything in it, and finishes after."""
    for row in player.rows.values():
        if not row.scope or row.id not in started:
            continue
        node, ordinal, _ = row.scope[-1]
        container = activation_id(RUN_ID, node, row.scope[:-1], ordinal)
        assert started[container] < started[row.id]
        if container in finished:
            assert finished.get(row.id, -1) < finished[container]
