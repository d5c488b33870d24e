"""Overlapping items: they start early, and the run is the same as with sequential items."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.graph import parallel_items
from canvas.graph.canvas import Canvas
from canvas.outcome import ContainerExited, ContainerOpened, Outcome
from canvas.state.run_state import ActivationStatus, RunStatus, ScopeKey
from tests.builders import (
    NodeAttempt,
    Script,
    canvas_of,
    default_outcome,
    failed,
    items,
    lost_once,
    reads,
    script_of,
    seeded_random,
)
from tests.canvases_at_random import SeededScript
from tests.listener import check_events
from tests.player import Player

EACH = canvas_of("begin -> each -> end", "each: item -> a -> b")


@pytest.fixture(autouse=True)
def allow_three_overlapping_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_items, "AT_ONCE", 3)


def item_scope(item: int) -> ScopeKey:
    return (("each", 0, item),)


def started_iteration(canvas: Canvas = EACH, script: Script | None = None, count: int = 5) -> Player:
    """Return a run whose Iteration has just opened its body."""
    player = Player(canvas, script or script_of(each=items(count))).begin()
    return player.report("begin").report("each")


def complete_items(player: Player, *numbers: int) -> None:
    """Complete the passes of some items, one after another."""
    for item in numbers:
        for node in ("item", "a", "b"):
            player.report(node, scope=item_scope(item))


def fails_in(*numbers: int) -> Script:
    return script_of(
        each=items(5), a=lambda at: failed(f"broken {at.item}") if at.item in numbers else default_outcome(at)
    )


def test_overlapping_items_start_together_with_the_order_keys_of_a_sequential_run():
    player = started_iteration()

    assert player.busy_nodes == ["item"] * 3
    assert [player.row("item", item_scope(item)).order_key.level for item in range(3)] == [2, 5, 8]


def test_events_of_a_later_item_are_deferred_until_earlier_items_end():
    player = started_iteration()

    complete_items(player, 2, 1)
    assert player.short_events == ["workflow_started", "+begin", "-begin", "+each", "+item"]
    complete_items(player, 0)

    assert player.short_events[4:] == [*["+item", "-item", "+a", "-a", "+b", "-b"] * 3, "+item"]


def test_warmup_items_that_call_a_model_run_one_at_a_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parallel_items, "WARMUP_ITEMS", 2)
    player = started_iteration(canvas_of("begin -> each -> end", "each: item -> model"))

    widths: list[int] = []
    for item in range(3):
        widths.append(len(player.busy_nodes))
        player.report("item", scope=item_scope(item)).report("model", scope=item_scope(item))

    assert widths == [1, 1, 3]


def test_slow_item_does_not_block_the_items_after_it():
    player = started_iteration(count=100)

    for item in range(1, 12):
        complete_items(player, item)

    assert [row.scope[0][2] for row in player.active.values() if row.node == "item"] == [0]
    assert player.row("b", item_scope(11)).status is ActivationStatus.DONE


def test_last_visit_follows_every_item_with_the_order_key_of_a_sequential_run():
    player = started_iteration(count=2)

    complete_items(player, 1, 0)

    assert player.busy_nodes == ["item"]
    assert player.row("item", item_scope(2)).order_key.level == 8
    assert player.play().status is RunStatus.SUCCEEDED
    assert player.short_events[-6:] == ["+item", "-item", "-each", "+end", "-end", "workflow_finished"]
    check_events(player)


def test_single_item_and_items_limited_to_one_at_a_time_do_not_overlap():
    in_order = canvas_of("begin -> each -> end", "each: item -> a -> b", each={"max_concurrency": "1"})

    assert started_iteration(count=1).busy_nodes == ["item"]
    assert started_iteration(in_order).busy_nodes == ["item"]


def test_failure_of_a_later_item_waits_for_the_items_before_it():
    player = started_iteration(script=fails_in(1))
    player.report("item", scope=item_scope(1)).report("a", scope=item_scope(1))

    assert player.status is RunStatus.RUNNING
    complete_items(player, 0)

    assert player.play().error == "Node a (StringTransform): broken 1"
    assert player.short_events[-4:] == ["-item", "+a", "-a", "run_failed"]


def test_run_error_is_the_failure_of_the_earliest_item():
    player = started_iteration(script=fails_in(0, 2))
    player.report("item", scope=item_scope(2)).report("a", scope=item_scope(2))

    player.report("item", scope=item_scope(0)).report("a", scope=item_scope(0)).play()

    assert player.error == "Node a (StringTransform): broken 0"
    assert player.short_events[4:] == ["+item", "-item", "+a", "-a", "run_failed"]


def test_items_after_a_failed_item_are_cancelled_or_not_started():
    player = started_iteration(script=fails_in(1))

    player.report("item", scope=item_scope(1)).report("a", scope=item_scope(1))
    assert player.cancelled_after == {"each#0": 1}
    complete_items(player, 0)

    assert all(row.scope[0][2] < 3 for row in player.rows.values() if row.scope)


def test_nodes_of_the_level_of_a_deferred_failure_run_and_no_later_ones():
    canvas = canvas_of("begin -> each -> end", "each: item -> x, b; x -> y; b -> c -> d")
    player = started_iteration(
        canvas, script_of(each=items(2), y=lambda at: failed("broken") if at.item else default_outcome(at))
    )
    player.report("item", scope=item_scope(1)).report("x", scope=item_scope(1)).report("y", scope=item_scope(1))

    player.report("b", scope=item_scope(1)).report("c", scope=item_scope(1))

    assert player.status is RunStatus.RUNNING
    assert not any(row.node == "d" for row in player.rows.values())


def test_node_of_a_lost_worker_in_a_later_item_is_retried():
    player = Player(
        EACH, script_of(each=items(5), a=lambda at: lost_once(at) if at.item else default_outcome(at))
    ).play()

    assert player.status is RunStatus.SUCCEEDED
    check_events(player)


def test_failure_of_an_overlapping_item_in_a_parallel_item_fails_the_outer_container():
    canvas = canvas_of("begin -> eachx -> end", "eachx: itemx -> each", "each: item -> a", eachx={"max_concurrency": 2})
    script = script_of(
        eachx=items(2, at_once=2), each=items(3), a=lambda at: failed("broken") if at.item == 1 else default_outcome(at)
    )
    inner = (("eachx", 0, 0), ("each", 0, 1))
    player = Player(canvas, script).begin().report("begin").report("eachx").report("itemx").report("each")

    player.report("item", scope=inner).report("a", scope=inner).play()

    assert player.error == "Node eachx (Iteration): item 0: broken"


def test_cancelled_run_emits_no_deferred_events():
    player = started_iteration()
    player.report("item", scope=item_scope(1)).report("item", scope=item_scope(0))

    player.cancel().play()

    assert player.short_events[4:] == ["+item", "-item", "+a", "workflow_finished"]


def test_run_fails_when_the_list_shrinks_while_its_items_overlap():
    player = started_iteration(
        script=script_of(each=items(5), item=lambda at: ContainerExited() if at.item == 1 else default_outcome(at))
    )

    player.play()

    assert player.status is RunStatus.FAILED
    assert "changed" in player.error


# -- random canvases -------------------------------------------------------------------------------------------------
SURROUNDINGS = {
    "nothing": ("begin -> each -> end",),
    "a branch": ("begin -> each, x; x -> y -> sayx; each -> sayy; x -> sayy",),
    "a loop": ("begin -> loop -> say", "loop: visit -> each -> z"),
    "items": ("begin -> eachx -> say", "eachx: itemx -> each -> z"),
}


def random_overlapping_canvas(rng: random.Random, surroundings: str, *, chain: bool) -> tuple[Canvas, Script]:
    """Return a canvas whose Iteration may overlap, and the script of its nodes."""
    nodes = [f"{rng.choice(('n', 'n', 'model'))}{number}" for number in range(rng.randint(1, 4))]
    edges: dict[str, list[str]] = {name: [] for name in ("item", *nodes)}
    params: dict[str, Any] = {"eachx": {"max_concurrency": 2}} if surroundings == "items" else {}
    for position, name in enumerate(nodes):
        before = ["item", *nodes[:position]]
        for source in before[-1:] if chain else rng.sample(before, rng.randint(1, min(2, len(before)))):
            edges[source].append(name)
        if rng.randint(0, 2) == 0:
            params[name] = reads(rng.choice(before[-1:] if chain else before[:1]))
    body = "each: " + "; ".join(f"{source} -> {', '.join(ends)}" for source, ends in edges.items() if ends)
    canvas = canvas_of(*SURROUNDINGS[surroundings], body, **params)
    dice = SeededScript(rng.randint(0, 9999), fatal=rng.choice((0, 0, 6, 15)))
    count = rng.randint(2, 9)

    def script(at: NodeAttempt) -> Outcome:
        outcome = dice(at)
        if isinstance(outcome, ContainerOpened):
            return items(count if at.node == "each" else 3, at_once=2 if at.node == "eachx" else 1)
        return outcome

    return canvas, script


def run_both_ways(rng: random.Random, surroundings: str, *, chain: bool) -> tuple[Player, Player]:
    """Return the same run twice: with sequential and with overlapping items."""
    canvas, script = random_overlapping_canvas(rng, surroundings, chain=chain)
    assert parallel_items.pipelined_levels(canvas, canvas.node("each"))
    players: list[Player] = []
    for at_once in (1, rng.randint(2, 4)):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(parallel_items, "AT_ONCE", at_once)
            seed, max_running = seeded_random(rng.randint(0, 9999)), rng.choice((1, 2, 3, 256))
            players.append(
                Player(canvas, script, seed, max_running=max_running, check_determinism=True).play_and_answer()
            )
    return players[0], players[1]


def emitted_events(player: Player) -> list[tuple[Any, ...]]:
    return [(event.name, event.activation, event.node_id, event.body) for event in player.events]


quick = settings(deadline=None, max_examples=25)
randoms = st.randoms(use_true_random=False)


@quick
@given(randoms, st.sampled_from(("nothing", "a loop")))
def test_overlapping_run_emits_the_events_of_a_sequential_run_in_the_same_order(rng: random.Random, surroundings: str):
    in_order, overlapping = run_both_ways(rng, surroundings, chain=True)

    assert emitted_events(overlapping) == emitted_events(in_order)
    assert (overlapping.status, overlapping.error) == (in_order.status, in_order.error)


@quick
@given(randoms, st.sampled_from(sorted(SURROUNDINGS)))
def test_overlapping_run_has_the_status_and_order_keys_of_a_sequential_run(rng: random.Random, surroundings: str):
    in_order, overlapping = run_both_ways(rng, surroundings, chain=False)

    assert overlapping.status is in_order.status
    if surroundings != "a branch":  # parallel branches: the order of reports decides which failure ends the run
        assert overlapping.error == in_order.error
    if in_order.status is RunStatus.SUCCEEDED:
        assert overlapping.rows.keys() == in_order.rows.keys()
        assert [(row.id, row.order_key) for row in overlapping.ordered_rows] == [
            (row.id, row.order_key) for row in in_order.ordered_rows
        ]
        assert Counter(map(str, emitted_events(overlapping))) == Counter(map(str, emitted_events(in_order)))
        assert overlapping.ended_streams == in_order.ended_streams
        assert overlapping.last_node == in_order.last_node
        check_events(overlapping)
