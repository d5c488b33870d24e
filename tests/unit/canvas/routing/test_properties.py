"""Properties of every canvas: the order of reports does not matter, every run ends, and events are consistent.

The player behind these tests sends state through JSON between every two decisions, and holds every decision against
the legal moves and the invariants of a run (`tests/player.py`).
"""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.events.run_events import MESSAGE_RESET
from canvas.state.run_state import RunStatus
from tests.builders import seeded_random
from tests.canvases_at_random import CanvasCase, random_cases, random_layered_cases
from tests.listener import check_events
from tests.player import Player

SEEDS = st.tuples(st.integers(0, 9999), st.integers(0, 9999))
quick = settings(deadline=None, max_examples=40)


def event_counts(player: Player) -> Counter[str]:
    """Return all events without order and numbers. Resets are left out: they depend on the text streamed before."""
    events = (event for event in player.events if event.name != MESSAGE_RESET)
    return Counter(f"{event.name} {event.activation} {event.node_id} {event.body}" for event in events)


def activations_of(player: Player, *, up_to: int | None = None) -> dict[Any, Any]:
    """Return all activations with their order keys, of a failed run those up to a level."""
    rows = player.rows.values()
    return {row.id: (row.node, row.order_key) for row in rows if up_to is None or row.order_key.level <= up_to}


@quick
@given(random_cases(), SEEDS)
def test_any_order_and_grouping_of_reports_gives_the_same_run(story: CanvasCase, seeds: tuple[int, int]):
    one, other = (Player(story.canvas, story.script, seeded_random(seed)).play_and_answer() for seed in seeds)

    assert activations_of(one) == activations_of(other)
    assert one.path == other.path
    assert one.ended_streams == other.ended_streams
    assert one.last_node == other.last_node
    assert event_counts(one) == event_counts(other)


@quick
@given(random_cases(cycles=True), SEEDS)
def test_run_with_cycles_is_the_same_in_any_order_and_grouping_of_reports(story: CanvasCase, seeds: tuple[int, int]):
    one, other = (Player(story.canvas, story.script, seeded_random(seed)).play_and_answer() for seed in seeds)

    assert activations_of(one) == activations_of(other)
    assert one.ended_streams == other.ended_streams
    assert one.last_node == other.last_node
    assert event_counts(one) == event_counts(other)
    check_events(one)


@quick
@given(random_layered_cases(), SEEDS)
def test_failing_run_is_deterministic_up_to_the_failing_level(story: CanvasCase, seeds: tuple[int, int]):
    one, other = (Player(story.canvas, story.script, seeded_random(seed)).play_and_answer() for seed in seeds)

    level = one.failure[0] if one.failure else None
    streams = [
        [
            stream_id
            for stream_id in player.ended_streams
            if level is None or player.rows[stream_id].order_key.level <= level
        ]
        for player in (one, other)
    ]
    assert one.failure == other.failure
    assert one.error == other.error
    assert activations_of(one, up_to=level) == activations_of(other, up_to=level)
    assert streams[0] == streams[1]


@quick
@given(random_cases(fatal=10, forms=False), SEEDS)
def test_status_of_a_run_does_not_depend_on_the_order_of_reports(story: CanvasCase, seeds: tuple[int, int]):
    one, other = (Player(story.canvas, story.script, seeded_random(seed)).play_and_answer() for seed in seeds)

    assert one.status is other.status


@quick
@given(random_cases(fatal=4), st.integers(0, 9999), st.sampled_from((1, 2, 256)))
def test_every_run_ends_with_consistent_events(story: CanvasCase, seed: int, max_running: int):
    player = Player(
        story.canvas, story.script, seeded_random(seed), max_running=max_running, check_determinism=True
    ).play_and_answer()

    assert player.status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
    assert player.scopes == {}
    check_events(player)


@quick
@given(random_cases(fatal=4), st.integers(0, 9999), st.integers(0, 30))
def test_a_run_can_be_cancelled_at_any_time(story: CanvasCase, seed: int, step_count: int):
    player = Player(story.canvas, story.script, seeded_random(seed)).begin()
    for _ in range(step_count):
        if player.status is RunStatus.RUNNING:
            player.step()
    was_over, known = player.status.is_over, set(player.rows)

    if not was_over:
        player.cancel().play()

    assert was_over or player.status is RunStatus.CANCELLED
    assert set(player.rows) == known
    check_events(player)
