"""What a listener may rely on, whatever the run did (engine 4.8, 5.3)."""

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
    """What a listener may rely on (engine 4.8, 5.3), for a run that is over."""
    names = [event.name for event in player.events]
    assert names[0] == WORKFLOW_STARTED
    assert names.count(WORKFLOW_STARTED) == 1
    assert names[-1] == (RUN_FAILED if player.status is RunStatus.FAILED else WORKFLOW_FINISHED)
    assert names.count(RUN_FAILED) + names.count(WORKFLOW_FINISHED) == 1
    started: dict[UUID, int] = {}
    ended: dict[UUID, int] = {}
    finished: dict[UUID, int] = {}
    for number, event in enumerate(player.events):
        kept = {NODE_STARTED: started, MESSAGE_END: ended, NODE_FINISHED: finished}.get(event.name)
        if kept is not None:
            activation = _subject(player, event)
            assert activation not in kept, f"{event.name} of {event.node_id} comes twice"
            kept[activation] = number
    for activation, number in finished.items():
        assert started[activation] < ended.get(activation, number - 1) < number or activation not in ended
        assert started[activation] < number
    for turn, number in player.opened.items():
        assert started[turn] < number <= ended.get(turn, len(player.events))
    if player.status is RunStatus.SUCCEEDED:
        unfinished = {row.id for row in player.rows.values() if _failed_before_its_body(player, row)}
        announced = started.keys() - player.rows.keys()  # by a speaker in an item that failed before its Message came
        assert announced <= player.opened.keys()
        assert started.keys() - announced == finished.keys() | unfinished == player.rows.keys()
    _check_held(player, ended, finished)
    _check_containers(player, started, finished)


def _failed_before_its_body(player: Player, row: Row) -> bool:
    """Such a container shows no `node_finished`."""
    is_container = player.canvas.node(row.node).kind.is_container
    return is_container and isinstance(row.outcome, Failed) and row.id not in player.spoken_streams


def _subject(player: Player, event: Event) -> UUID:
    """The activation an event is about: a container's `node_finished` names the visit that wrote its outputs."""
    assert event.activation is not None
    row = player.rows.get(event.activation)
    if row is None or row.node == event.node_id:
        return event.activation  # a Message that never came may have been announced by its speaker
    node, ordinal, _ = row.scope[-1]
    assert node == event.node_id
    return activation_id(RUN_ID, node, row.scope[:-1], ordinal)


def _check_held(player: Player, ended: Mapping[UUID, int], finished: Mapping[UUID, int]) -> None:
    """A speaker's `node_finished` comes between its Message's `message_end` and `node_finished`.

    In a circle nobody can tell which round's Message a speaker's round had.
    """
    if player.canvas.reachability.back:
        return
    for row in player.rows.values():
        turn = player.canvas.stream_targets.get(player.canvas.numbers[row.node])
        is_held = turn is not None and not player.canvas.uncalled_models & player.canvas.node(row.node).bit
        if turn is None or not is_held or isinstance(row.outcome, Failed) or row.id not in finished:
            continue
        message = player.canvas.nodes[turn.message].id
        ends = [
            (ended[other.id], finished[other.id])
            for other in player.rows.values()
            if other.node == message and other.scope == row.scope and other.id in ended and other.id in finished
        ]
        assert not ends or any(end < finished[row.id] < own for end, own in ends)


def _check_containers(player: Player, started: Mapping[UUID, int], finished: Mapping[UUID, int]) -> None:
    """A container starts before everything in it, and finishes after."""
    for row in player.rows.values():
        if not row.scope or row.id not in started:
            continue
        node, ordinal, _ = row.scope[-1]
        container = activation_id(RUN_ID, node, row.scope[:-1], ordinal)
        assert started[container] < started[row.id]
        if container in finished:
            assert finished.get(row.id, -1) < finished[container]
