"""Split the events of one run into steps of nodes and of the run, and message streams ("turns").

The key of a step is (event, node, number of such events before). It is the same in two recordings of one run, however
their events interleave. A turn ends with its `message_end`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cli.conformance.compare.normalise import NormalisedEvent, join_texts

Key: TypeAlias = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Step:
    """One event that is not a text delta."""

    key: Key
    event: NormalisedEvent


@dataclass(frozen=True, slots=True)
class Story:
    """The events of a run. `position` has every step by its key, and the first text of turn n by `start_of_text(n)`."""

    steps: tuple[Step, ...]
    turns: tuple[tuple[NormalisedEvent, ...], ...]  # text of each turn, joined; the last turn may lack its end
    position: Mapping[Key, int]
    finish_of: Mapping[Key, Key]  # node_started -> its node_finished
    start_of: Mapping[Key, Key]  # node_finished -> its node_started


def start_of_text(turn: int) -> Key:
    """Return the key of the first text of a turn."""
    return ("message", "", turn)


def end_of_text(turn: int) -> Key:
    """Return the key of a turn's `message_end`."""
    return ("message_end", "", turn)


def label(key: Key) -> str:
    """Return a step for people."""
    name, node, number = key
    text = f"{name} of {node}" if node else name
    return f"{text} (no. {number + 1})" if number else text


def build_story(events: Sequence[NormalisedEvent]) -> Story:
    """Return the story of events, which are in the order in which they were sent."""
    seen: Counter[tuple[str, str]] = Counter()
    steps: list[Step] = []
    turns: list[list[NormalisedEvent]] = []
    position: dict[Key, int] = {}
    finish_of: dict[Key, Key] = {}
    running: dict[str, list[Key]] = {}
    is_speaking = False
    for at, event in enumerate(events):
        if event.name == "message":
            if not is_speaking:
                position[start_of_text(len(turns))] = at
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
            # the latest: a container that was left early may never finish
            finish_of[running[event.node_id].pop()] = key
    return Story(
        tuple(steps),
        tuple(tuple(join_texts(deltas)) for deltas in turns),
        position,
        finish_of,
        {finish: start for start, finish in finish_of.items()},
    )
