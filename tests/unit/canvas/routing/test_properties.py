"""What holds for every canvas: the order of reports leaves no trace, every run ends, and listeners are not misled.

The player behind these tests sends state through JSON between every two decisions, and holds every decision against
the legal moves and the invariants of a run (`tests/player.py`).
"""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.events.run_events import MESSAGE_RESET
from canvas.state.run_state import RunStatus
from tests.builders import seeded
from tests.canvases_at_random import Story, layered, stories
from tests.listener import check_events
from tests.player import Player

SEEDS = st.tuples(st.integers(0, 9999), st.integers(0, 9999))
quick = settings(deadline=None, max_examples=40)


def told(player: Player) -> Counter[str]:
    """All events, without their order and numbers. Whether a retry takes text back depends on who has heard it."""
    events = (event for event in player.events if event.name != MESSAGE_RESET)
    return Counter(f"{event.name} {event.activation} {event.node_id} {event.body}" for event in events)


def made(player: Player, *, up_to: int | None = None) -> dict[Any, Any]:
    """All activations with their places, of a failed run those up to a level."""
    rows = player.rows.values()
    return {row.id: (row.node, row.place) for row in rows if up_to is None or row.place.level <= up_to}


@quick
@given(stories(), SEEDS)
def test_any_order_and_grouping_of_reports_gives_the_same_run(story: Story, seeds: tuple[int, int]):
    one, other = (Player(story.canvas, story.script, seeded(seed)).play_out() for seed in seeds)

    assert made(one) == made(other)
    assert one.path == other.path
    assert one.spoken_streams == other.spoken_streams
    assert one.last == other.last
    assert told(one) == told(other)


@quick
@given(stories(circles=True), SEEDS)
def test_rounds_of_circles_do_not_race_with_what_runs_beside_them(story: Story, seeds: tuple[int, int]):
    one, other = (Player(story.canvas, story.script, seeded(seed)).play_out() for seed in seeds)

    assert made(one) == made(other)
    assert one.spoken_streams == other.spoken_streams
    assert one.last == other.last
    assert told(one) == told(other)
    check_events(one)


@quick
@given(layered(), SEEDS)
def test_failing_run_is_deterministic_up_to_the_failing_level(story: Story, seeds: tuple[int, int]):
    one, other = (Player(story.canvas, story.script, seeded(seed)).play_out() for seed in seeds)

    level = one.failing[0] if one.failing else None
    heard = [
        [turn for turn in player.spoken_streams if level is None or player.rows[turn].place.level <= level]
        for player in (one, other)
    ]
    assert one.failing == other.failing
    assert one.error == other.error
    assert made(one, up_to=level) == made(other, up_to=level)
    assert heard[0] == heard[1]


@quick
@given(stories(fatal=10, forms=False), SEEDS)
def test_whether_a_run_fails_does_not_depend_on_who_is_faster(story: Story, seeds: tuple[int, int]):
    one, other = (Player(story.canvas, story.script, seeded(seed)).play_out() for seed in seeds)

    assert one.status is other.status


@quick
@given(stories(fatal=4), st.integers(0, 9999), st.sampled_from((1, 2, 256)))
def test_every_run_ends_and_its_listeners_are_not_misled(story: Story, seed: int, max_running: int):
    player = Player(story.canvas, story.script, seeded(seed), max_running=max_running, watched=True).play_out()

    assert player.status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
    assert player.scopes == {}
    check_events(player)


@quick
@given(stories(fatal=4), st.integers(0, 9999), st.integers(0, 30))
def test_a_run_can_be_cancelled_at_any_time(story: Story, seed: int, patience: int):
    player = Player(story.canvas, story.script, seeded(seed)).begin()
    for _ in range(patience):
        if player.status is RunStatus.RUNNING:
            player.step()
    was_over, known = player.status.is_over, set(player.rows)

    if not was_over:
        player.cancel().play()

    assert was_over or player.status is RunStatus.CANCELLED
    assert set(player.rows) == known
    check_events(player)
