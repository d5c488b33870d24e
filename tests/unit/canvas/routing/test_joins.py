"""When a reached node is ready: it waits for all that can still arrive, and for nothing else (engine 4.6)."""

import pytest

from canvas.outcome import Finished
from canvas.routing.decide import decide
from canvas.state.run_state import MAX_ORDINAL, RunStatus
from tests.builders import canvas_of, chose, default, failed, goto, items, reads, report, running, script_of, seeded
from tests.player import Player


def test_a_join_waits_for_every_branch_that_can_still_arrive():
    canvas = canvas_of("begin -> search, recall; search, recall -> answer")
    state = running(canvas, live=["search", "recall"])

    decision = decide(canvas, state, [report("search", Finished())])

    assert decision.activated_nodes == []


def test_a_merge_does_not_wait_for_the_road_not_taken():
    canvas = canvas_of("ask -> yes, no; yes, no -> answer")
    state = running(canvas, live=["yes"])  # "no" was not chosen

    decision = decide(canvas, state, [report("yes", Finished())])

    assert decision.activated_nodes == ["answer"]


def test_a_join_reached_by_paths_of_unequal_length_runs_once_after_the_longer():
    player = Player(canvas_of("begin -> a, b; a -> end; b -> c -> d -> end")).begin()

    player.report("begin").report("a")
    assert "end" not in player.path
    player.report("b").report("c").report("d")

    assert player.live == ["end"]
    assert player.row("end").place.level == 4


def test_dead_path_of_any_length_delays_no_node():
    canvas = canvas_of("begin -> pick -> a, b; b -> c -> d -> end; a -> end")
    player = Player(canvas, script_of(pick=chose("a"))).begin()

    player.report("begin").report("pick").report("a")

    assert player.live == ["end"]


def test_a_router_inside_a_dead_path_is_no_hope_either():
    canvas = canvas_of("begin -> pick -> a, pickb; a -> end; pickb -> end, c")
    player = Player(canvas, script_of(pick=chose("a"))).play()

    assert player.path == ["begin", "pick", "a", "end"]


def test_a_router_may_choose_nothing():
    player = Player(canvas_of("begin -> pick -> a, b -> end"), script_of(pick=chose())).play()

    assert player.path == ["begin", "pick"]
    assert player.status is RunStatus.SUCCEEDED


def test_a_router_that_names_an_unknown_node_takes_a_dead_edge():
    player = Player(canvas_of("begin -> pick -> a, b"), script_of(pick=chose("gone", "b"))).play()

    assert player.path == ["begin", "pick", "b"]


def test_an_edge_drawn_twice_activates_once():
    player = Player(canvas_of("begin -> a; begin -> a; a, begin -> b; a -> b")).play()

    assert player.path == ["begin", "a", "b"]


def test_everything_that_several_nodes_reach_runs_once():
    player = Player(canvas_of("begin -> a, b -> j, k -> end")).play()

    assert player.path == ["begin", "a", "b", "j", "k", "end"]


def test_a_join_waits_for_a_failure_route_that_may_still_be_taken():
    canvas = canvas_of("begin -> a, b; b -> end; rescue -> end", a=goto("rescue"))
    player = Player(canvas, script_of(a=failed())).begin().report("begin")

    player.report("b")
    assert "end" not in player.path
    player.report("a")

    assert player.live == ["rescue"]
    assert player.play().path == ["begin", "a", "b", "rescue", "end"]


def test_a_failure_route_not_taken_is_a_dead_path():
    player = Player(canvas_of("begin -> a -> b -> end; rescue -> end", a=goto("rescue"))).play()

    assert player.path == ["begin", "a", "b", "end"]


def test_a_reference_to_a_sibling_is_waited_for():
    player = Player(canvas_of("begin -> reader, slow", reader=reads("slow"))).begin()

    player.report("begin")
    assert player.live == ["slow"]
    player.report("slow")

    assert player.live == ["reader"]


def test_a_reference_to_a_branch_that_did_not_run_is_not_waited_for():
    canvas = canvas_of("begin -> pick -> a, b; a -> reader", reader=reads("b"))
    player = Player(canvas, script_of(pick=chose("a"))).play()

    assert player.path == ["begin", "pick", "a", "reader"]


@pytest.mark.parametrize("seed", range(5))
def test_nodes_that_refer_to_each_other_in_a_circle_all_run(seed: int):
    canvas = canvas_of("begin -> a, b, c", a=reads("b"), b=reads("c"), c=reads("a"))
    player = Player(canvas, rng=seeded(seed)).play()

    assert sorted(player.path) == ["a", "b", "begin", "c"]


def test_canonical_order_is_level_then_first_predecessor_then_position():
    player = Player(canvas_of("begin -> a, b; a -> c, d; b -> d, e; d -> f; c -> g"))

    assert player.play().path == ["begin", "a", "b", "c", "d", "e", "g", "f"]


@pytest.mark.parametrize("seed", range(5))
def test_canonical_order_does_not_follow_the_clock(seed: int):
    canvas = canvas_of("begin -> pick, a; pick -> x, y; a -> b; x, b -> end; y -> z -> end")
    script = script_of(pick=chose("y", "x"))

    player = Player(canvas, script, seeded(seed)).play()

    assert player.path == ["begin", "pick", "a", "y", "x", "b", "z", "end"]


def test_a_chosen_order_of_branches_is_their_canonical_order():
    player = Player(canvas_of("begin -> pick -> a, b"), script_of(pick=chose("b", "a"))).play()

    assert player.path == ["begin", "pick", "b", "a"]


def test_a_node_on_a_circle_runs_again_as_a_new_ordinal():
    canvas = canvas_of("begin -> a -> pick -> a, end")
    player = Player(canvas, script_of(pick=[chose("a"), chose("a"), chose("end")])).play()

    assert player.path == ["begin", "a", "pick", "a", "pick", "a", "pick", "end"]
    assert [row.ordinal for row in player.ordered if row.node == "a"] == [0, 1, 2]
    assert player.row("end").place.level == 7


def test_what_a_circle_leads_to_may_run_again_too():
    canvas = canvas_of("begin -> a -> pick -> a, end")
    player = Player(canvas, script_of(pick=[chose("a", "end"), chose("end")])).play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.path.count("end") == 1  # it waits for all that the circle may still send


def test_a_circle_without_end_fails_at_the_cap():
    canvas = canvas_of("begin -> a -> pick -> a, end")
    player = Player(canvas, script_of(pick=chose("a"))).play()

    assert player.status is RunStatus.FAILED
    assert player.path.count("a") == MAX_ORDINAL
    assert f"has run {MAX_ORDINAL} times" in player.error


def test_a_cap_inside_of_side_by_side_items_is_their_containers_failure():
    canvas = canvas_of("begin -> each -> end", "each: item -> a -> pick -> a, b", each=default("sorry"))
    script = script_of(each=items(1, at_once=2), pick=chose("a"))

    player = Player(canvas, script).play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.spoken == ["each"]
