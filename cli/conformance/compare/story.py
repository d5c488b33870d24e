"""The events of one run told in two strands: steps of nodes and of the run, and what was said, turn by turn.

A step is known by its key, (event, node, how many like it came before), which two accounts of one run share however
their events interleave. A turn ends with its `message_end`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cli.conformance.compare.normalise import Event, joined

Key: TypeAlias = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Step:
    """One event that is no piece of speech."""

    key: Key
    event: Event


@dataclass(frozen=True, slots=True)
class Story:
    """`position` knows every step by its key, and the first piece of turn n as `first_piece(n)`."""

    steps: tuple[Step, ...]
    turns: tuple[tuple[Event, ...], ...]  # pieces of each turn, joined; the last turn may lack its end
    position: Mapping[Key, int]
    finish_of: Mapping[Key, Key]  # node_started -> its node_finished
    start_of: Mapping[Key, Key]  # and back


def first_piece(turn: int) -> Key:
    """The key under which the beginning of a turn's speech has its position."""
    return ("message", "", turn)


def end_of(turn: int) -> Key:
    """The key of a turn's `message_end`."""
    return ("message_end", "", turn)


def label(key: Key) -> str:
    """A step as people read it."""
    name, node, number = key
    text = f"{name} of {node}" if node else name
    return f"{text} (no. {number + 1})" if number else text


def story_of(events: Sequence[Event]) -> Story:
    """Events in the order they were sent, as a story."""
    seen: Counter[tuple[str, str]] = Counter()
    steps: list[Step] = []
    turns: list[list[Event]] = []
    position: dict[Key, int] = {}
    finish_of: dict[Key, Key] = {}
    running: dict[str, list[Key]] = {}
    is_speaking = False
    for at, event in enumerate(events):
        if event.name == "message":
            if not is_speaking:
                position[first_piece(len(turns))] = at
                turns.append([])
                is_speaking = True
            turns[-1].append(event)
            continue
        key = (event.name, event.node_id, seen[event.name, event.node_id])
        seen[event.name, event.node_id] += 1
        steps.append(Step(key, event))
        position[key] = at
        if event.name == "message_end":
            if not is_speaking:
                turns.append([])
            is_speaking = False
        elif event.name == "node_started":
            running.setdefault(event.node_id, []).append(key)
        elif event.name == "node_finished" and running.get(event.node_id):
            finish_of[running[event.node_id].pop()] = key  # the youngest: a container left early may never finish
    return Story(
        tuple(steps),
        tuple(tuple(joined(pieces)) for pieces in turns),
        position,
        finish_of,
        {finish: start for start, finish in finish_of.items()},
    )
