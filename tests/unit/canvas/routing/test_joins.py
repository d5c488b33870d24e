"""When a reached node is ready: it waits for exactly the branches that can still arrive (engine 4.6)."""

import pytest

from canvas.outcome import Finished
from canvas.routing.decide import decide
from canvas.state.run_state import MAX_ORDINAL, RunStatus
from tests.builders import (
    canvas_of,
    default,
    failed,
    goto,
    items,
    reads,
    report,
    routed_to,
    running,
    script_of,
    seeded_random,
)
from tests.player import Player


def test_a_join_waits_for_every_branch_that_can_still_arrive():
    canvas = canvas_of("begin -> search, recall; search, recall -> answer")
    state = running(canvas, active=["search", "recall"])

    decision = decide(canvas, state, [report("search", Finished())])

    assert decision.activated_nodes == []


def test_merge_does_not_wait_for_a_branch_that_was_not_chosen():
    canvas = canvas_of("ask -> yes, no; yes, no -> answer")
    state = running(canvas, active=["yes"])  # "no" was not chosen

    decision = decide(canvas, state, [report("yes", Finished())])

    assert decision.activated_nodes == ["answer"]


def test_a_join_reached_by_paths_of_unequal_length_runs_once_after_the_longer():
    player = Player(canvas_of("begin -> a, b; a -> end; b -> c -> d -> end")).begin()

    player.report("begin").report("a")
    assert "end" not in player.path
    player.report("b").report("c").report("d")

    assert player.busy_nodes == ["end"]
    assert player.row("end").order_key.level == 4


def test_dead_path_of_any_length_delays_no_node():
    canvas = canvas_of("begin -> pick -> a, b; b -> c -> d -> end; a -> end")
    player = Player(canvas, script_of(pick=routed_to("a"))).begin()

    player.report("begin").report("pick").report("a")

    assert player.busy_nodes == ["end"]


def test_join_does_not_wait_for_a_router_on_a_dead_path():
    canvas = canvas_of("begin -> pick -> a, pickb; a -> end; pickb -> end, c")
    player = Player(canvas, script_of(pick=routed_to("a"))).play()

    assert player.path == ["begin", "pick", "a", "end"]


def test_run_succeeds_when_a_router_chooses_no_branch():
    player = Player(canvas_of("begin -> pick -> a, b -> end"), script_of(pick=routed_to())).play()

    assert player.path == ["begin", "pick"]
    assert player.status is RunStatus.SUCCEEDED


def test_unknown_node_chosen_by_a_router_is_ignored():
    player = Player(canvas_of("begin -> pick -> a, b"), script_of(pick=routed_to("gone", "b"))).play()

    assert player.path == ["begin", "pick", "b"]


def test_duplicate_edge_activates_its_target_once():
    player = Player(canvas_of("begin -> a; begin -> a; a, begin -> b; a -> b")).play()

    assert player.path == ["begin", "a", "b"]


def test_node_reached_by_several_nodes_runs_once():
    player = Player(canvas_of("begin -> a, b -> j, k -> end")).play()

    assert player.path == ["begin", "a", "b", "j", "k", "end"]


def test_a_join_waits_for_a_failure_route_that_may_still_be_taken():
    canvas = canvas_of("begin -> a, b; b -> end; rescue -> end", a=goto("rescue"))
    player = Player(canvas, script_of(a=failed())).begin().report("begin")

    player.report("b")
    assert "end" not in player.path
    player.report("a")

    assert player.busy_nodes == ["rescue"]
    assert player.play().path == ["begin", "a", "b", "rescue", "end"]


def test_a_failure_route_not_taken_is_a_dead_path():
    player = Player(canvas_of("begin -> a -> b -> end; rescue -> end", a=goto("rescue"))).play()

    assert player.path == ["begin", "a", "b", "end"]


def test_node_waits_for_a_sibling_that_it_refers_to():
    player = Player(canvas_of("begin -> reader, slow", reader=reads("slow"))).begin()

    player.report("begin")
    assert player.busy_nodes == ["slow"]
    player.report("slow")

    assert player.busy_nodes == ["reader"]


def test_node_does_not_wait_for_a_reference_to_a_branch_that_did_not_run():
    canvas = canvas_of("begin -> pick -> a, b; a -> reader", reader=reads("b"))
    player = Player(canvas, script_of(pick=routed_to("a"))).play()

    assert player.path == ["begin", "pick", "a", "reader"]


@pytest.mark.parametrize("seed", range(5))
def test_nodes_that_refer_to_each_other_in_a_cycle_all_run(seed: int):
    canvas = canvas_of("begin -> a, b, c", a=reads("b"), b=reads("c"), c=reads("a"))
    player = Player(canvas, rng=seeded_random(seed)).play()

    assert sorted(player.path) == ["a", "b", "begin", "c"]


def test_canonical_order_is_level_then_first_predecessor_then_position():
    player = Player(canvas_of("begin -> a, b; a -> c, d; b -> d, e; d -> f; c -> g"))

    assert player.play().path == ["begin", "a", "b", "c", "d", "e", "g", "f"]


@pytest.mark.parametrize("seed", range(5))
def test_canonical_order_does_not_depend_on_execution_order(seed: int):
    canvas = canvas_of("begin -> pick, a; pick -> x, y; a -> b; x, b -> end; y -> z -> end")
    script = script_of(pick=routed_to("y", "x"))

    player = Player(canvas, script, seeded_random(seed)).play()

    assert player.path == ["begin", "pick", "a", "y", "x", "b", "z", "end"]


def test_canonical_order_of_branches_is_the_order_chosen_by_the_router():
    player = Player(canvas_of("begin -> pick -> a, b"), script_of(pick=routed_to("b", "a"))).play()

    assert player.path == ["begin", "pick", "b", "a"]


def test_node_on_a_cycle_runs_again_with_a_new_ordinal():
    canvas = canvas_of("begin -> a -> pick -> a, end")
    player = Player(canvas, script_of(pick=[routed_to("a"), routed_to("a"), routed_to("end")])).play()

    assert player.path == ["begin", "a", "pick", "a", "pick", "a", "pick", "end"]
    assert [row.ordinal for row in player.ordered_rows if row.node == "a"] == [0, 1, 2]
    assert player.row("end").order_key.level == 7


def test_node_after_a_cycle_waits_until_the_cycle_ends():
    canvas = canvas_of("begin -> a -> pick -> a, end")
    player = Player(canvas, script_of(pick=[routed_to("a", "end"), routed_to("end")])).play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.path.count("end") == 1  # it waits for every pass of the cycle


def test_endless_cycle_fails_at_the_ordinal_limit():
    canvas = canvas_of("begin -> a -> pick -> a, end")
    player = Player(canvas, script_of(pick=routed_to("a"))).play()

    assert player.status is RunStatus.FAILED
    assert player.path.count("a") == MAX_ORDINAL
    assert f"has run {MAX_ORDINAL} times" in player.error


def test_ordinal_limit_inside_a_parallel_item_fails_its_container():
    canvas = canvas_of("begin -> each -> end", "each: item -> a -> pick -> a, b", each=default("sorry"))
    script = script_of(each=items(1, at_once=2), pick=routed_to("a"))

    player = Player(canvas, script).play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.streamed_nodes == ["each"]
