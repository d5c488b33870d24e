"""Items that overlap: they run ahead of their turn, and the run looks as if each had waited for the one before."""

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
from tests.builders import At, Script, canvas_of, failed, items, lost_once, reads, script_of, seeded, usual
from tests.canvases_at_random import Dice
from tests.listener import check_events
from tests.player import Player

EACH = canvas_of("begin -> each -> end", "each: item -> a -> b")


@pytest.fixture(autouse=True)
def three_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items overlap by three."""
    monkeypatch.setattr(parallel_items, "AT_ONCE", 3)


def nth(item: int) -> ScopeKey:
    return (("each", 0, item),)


def begun(canvas: Canvas = EACH, script: Script | None = None, count: int = 5) -> Player:
    """A run whose Iteration has just opened its body."""
    player = Player(canvas, script or script_of(each=items(count))).begin()
    return player.report("begin").report("each")


def done(player: Player, *found: int) -> None:
    """Some items go through their passes, one after another."""
    for item in found:
        for node in ("item", "a", "b"):
            player.report(node, scope=nth(item))


def fails_in(*found: int) -> Script:
    return script_of(each=items(5), a=lambda at: failed(f"broken {at.item}") if at.item in found else usual(at))


def test_several_items_begin_at_once_and_stand_where_they_would_stand_in_order():
    player = begun()

    assert player.live == ["item"] * 3
    assert [player.row("item", nth(item)).place.level for item in range(3)] == [2, 5, 8]


def test_events_of_a_later_item_are_deferred_until_earlier_items_end():
    player = begun()

    done(player, 2, 1)
    assert player.story == ["workflow_started", "+begin", "-begin", "+each", "+item"]
    done(player, 0)

    assert player.story[4:] == [*["+item", "-item", "+a", "-a", "+b", "-b"] * 3, "+item"]


def test_the_first_items_that_ask_a_model_go_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parallel_items, "WARMUP_ITEMS", 2)
    player = begun(canvas_of("begin -> each -> end", "each: item -> model"))

    widths: list[int] = []
    for item in range(3):
        widths.append(len(player.live))
        player.report("item", scope=nth(item)).report("model", scope=nth(item))

    assert widths == [1, 1, 3]


def test_a_slow_item_does_not_hold_up_those_behind_it_for_a_while():
    player = begun(count=100)

    for item in range(1, 12):
        done(player, item)

    assert [row.scope[0][2] for row in player.alive.values() if row.node == "item"] == [0]
    assert player.row("b", nth(11)).status is ActivationStatus.DONE


def test_the_last_visit_comes_after_every_item_and_where_it_would_come_in_order():
    player = begun(count=2)

    done(player, 1, 0)

    assert player.live == ["item"]
    assert player.row("item", nth(2)).place.level == 8
    assert player.play().status is RunStatus.SUCCEEDED
    assert player.story[-6:] == ["+item", "-item", "-each", "+end", "-end", "workflow_finished"]
    check_events(player)


def test_items_that_are_few_or_one_at_a_time_by_order_do_not_overlap():
    in_order = canvas_of("begin -> each -> end", "each: item -> a -> b", each={"max_concurrency": "1"})

    assert begun(count=1).live == ["item"]
    assert begun(in_order).live == ["item"]


def test_failure_of_a_later_item_waits_for_the_items_before_it():
    player = begun(script=fails_in(1))
    player.report("item", scope=nth(1)).report("a", scope=nth(1))

    assert player.status is RunStatus.RUNNING
    done(player, 0)

    assert player.play().error == "Node a (StringTransform): broken 1"
    assert player.story[-4:] == ["-item", "+a", "-a", "run_failed"]


def test_an_earlier_item_that_fails_later_is_the_one_that_counts():
    player = begun(script=fails_in(0, 2))
    player.report("item", scope=nth(2)).report("a", scope=nth(2))

    player.report("item", scope=nth(0)).report("a", scope=nth(0)).play()

    assert player.error == "Node a (StringTransform): broken 0"
    assert player.story[4:] == ["+item", "-item", "+a", "-a", "run_failed"]


def test_after_a_failure_no_item_behind_it_begins_and_what_runs_there_is_called_off():
    player = begun(script=fails_in(1))

    player.report("item", scope=nth(1)).report("a", scope=nth(1))
    assert player.cancelled_after == {"each#0": 1}
    done(player, 0)

    assert all(row.scope[0][2] < 3 for row in player.rows.values() if row.scope)


def test_nodes_of_the_level_of_a_deferred_failure_run_and_no_later_ones():
    canvas = canvas_of("begin -> each -> end", "each: item -> x, b; x -> y; b -> c -> d")
    player = begun(canvas, script_of(each=items(2), y=lambda at: failed("broken") if at.item else usual(at)))
    player.report("item", scope=nth(1)).report("x", scope=nth(1)).report("y", scope=nth(1))

    player.report("b", scope=nth(1)).report("c", scope=nth(1))

    assert player.status is RunStatus.RUNNING
    assert not any(row.node == "d" for row in player.rows.values())


def test_a_worker_that_dies_in_a_later_item_is_only_a_second_attempt():
    player = Player(EACH, script_of(each=items(5), a=lambda at: lost_once(at) if at.item else usual(at))).play()

    assert player.status is RunStatus.SUCCEEDED
    check_events(player)


def test_a_failure_inside_of_side_by_side_items_fails_their_container():
    canvas = canvas_of("begin -> eachx -> end", "eachx: itemx -> each", "each: item -> a", eachx={"max_concurrency": 2})
    script = script_of(
        eachx=items(2, at_once=2), each=items(3), a=lambda at: failed("broken") if at.item == 1 else usual(at)
    )
    inner = (("eachx", 0, 0), ("each", 0, 1))
    player = Player(canvas, script).begin().report("begin").report("eachx").report("itemx").report("each")

    player.report("item", scope=inner).report("a", scope=inner).play()

    assert player.error == "Node eachx (Iteration): item 0: broken"


def test_cancelled_run_emits_no_deferred_events():
    player = begun()
    player.report("item", scope=nth(1)).report("item", scope=nth(0))

    player.cancel().play()

    assert player.story[4:] == ["+item", "-item", "+a", "workflow_finished"]


def test_a_list_that_grew_shorter_all_the_same_fails_the_run():
    player = begun(script=script_of(each=items(5), item=lambda at: ContainerExited() if at.item == 1 else usual(at)))

    player.play()

    assert player.status is RunStatus.FAILED
    assert "changed" in player.error


# -- as if in order --------------------------------------------------------------------------------------------------
AROUND = {
    "nothing": ("begin -> each -> end",),
    "a branch": ("begin -> each, x; x -> y -> sayx; each -> sayy; x -> sayy",),
    "a loop": ("begin -> loop -> say", "loop: visit -> each -> z"),
    "items": ("begin -> eachx -> say", "eachx: itemx -> each -> z"),
}


def run_at_random(rng: random.Random, around: str, *, chain: bool) -> tuple[Canvas, Script]:
    """A canvas whose Iteration may overlap, and what its nodes do."""
    nodes = [f"{rng.choice(('n', 'n', 'model'))}{number}" for number in range(rng.randint(1, 4))]
    edges: dict[str, list[str]] = {name: [] for name in ("item", *nodes)}
    params: dict[str, Any] = {"eachx": {"max_concurrency": 2}} if around == "items" else {}
    for position, name in enumerate(nodes):
        before = ["item", *nodes[:position]]
        for source in before[-1:] if chain else rng.sample(before, rng.randint(1, min(2, len(before)))):
            edges[source].append(name)
        if rng.randint(0, 2) == 0:
            params[name] = reads(rng.choice(before[-1:] if chain else before[:1]))
    body = "each: " + "; ".join(f"{source} -> {', '.join(ends)}" for source, ends in edges.items() if ends)
    canvas = canvas_of(*AROUND[around], body, **params)
    dice = Dice(rng.randint(0, 9999), fatal=rng.choice((0, 0, 6, 15)))
    most = rng.randint(2, 9)

    def script(at: At) -> Outcome:
        outcome = dice(at)
        if isinstance(outcome, ContainerOpened):
            return items(most if at.node == "each" else 3, at_once=2 if at.node == "eachx" else 1)
        return outcome

    return canvas, script


def both(rng: random.Random, around: str, *, chain: bool) -> tuple[Player, Player]:
    """The same run in order, and with items that overlap."""
    canvas, script = run_at_random(rng, around, chain=chain)
    assert parallel_items.pipelined_levels(canvas, canvas.node("each"))
    found: list[Player] = []
    for at_once in (1, rng.randint(2, 4)):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(parallel_items, "AT_ONCE", at_once)
            seed, places = seeded(rng.randint(0, 9999)), rng.choice((1, 2, 3, 256))
            found.append(Player(canvas, script, seed, max_running=places, watched=True).play_out())
    return found[0], found[1]


def told(player: Player) -> list[tuple[Any, ...]]:
    return [(event.name, event.activation, event.node_id, event.body) for event in player.events]


quick = settings(deadline=None, max_examples=25)
chance = st.randoms(use_true_random=False)


@quick
@given(chance, st.sampled_from(("nothing", "a loop")))
def test_reader_gets_the_same_events_in_the_same_order(rng: random.Random, around: str):
    in_order, overlapping = both(rng, around, chain=True)

    assert told(overlapping) == told(in_order)
    assert (overlapping.status, overlapping.error) == (in_order.status, in_order.error)


@quick
@given(chance, st.sampled_from(sorted(AROUND)))
def test_a_run_comes_to_the_same_end_in_the_same_places(rng: random.Random, around: str):
    in_order, overlapping = both(rng, around, chain=False)

    assert overlapping.status is in_order.status
    if around != "a branch":  # beside others it depends on who is faster which failure the run comes to know of
        assert overlapping.error == in_order.error
    if in_order.status is RunStatus.SUCCEEDED:
        assert overlapping.rows.keys() == in_order.rows.keys()
        assert [(row.id, row.place) for row in overlapping.ordered] == [(row.id, row.place) for row in in_order.ordered]
        assert Counter(map(str, told(overlapping))) == Counter(map(str, told(in_order)))
        assert overlapping.spoken_streams == in_order.spoken_streams
        assert overlapping.last == in_order.last
        check_events(overlapping)
