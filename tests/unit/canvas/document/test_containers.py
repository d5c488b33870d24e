"""Iteration and Loop: sequential and parallel passes, exits, and nested containers (engine 4.4)."""

import pytest

from canvas.outcome import ContainerExited, Finished, NextIteration, Outcome
from canvas.state.run_state import RunStatus, scope_text
from tests.builders import (
    NodeAttempt,
    Script,
    canvas_of,
    default,
    default_outcome,
    failed,
    goto,
    items,
    rounds,
    routed_to,
    script_of,
    seeded_random,
)
from tests.listener import check_events
from tests.player import Player

IN_ORDER = {"max_concurrency": 1}
EACH = canvas_of("begin -> each -> end", "each: item -> a", each=IN_ORDER)
LOOP = canvas_of("begin -> loop -> end", "loop: visit -> a")


def fails_in(*passes: int) -> Script:
    """Return a script that fails in these passes of its container."""
    return lambda at: failed(f"broken {at.item}") if at.item in passes else default_outcome(at)


# -- sequential passes -----------------------------------------------------------------------------------------------
def test_items_run_one_after_another_and_a_last_visit_ends_the_iteration():
    player = Player(EACH, script_of(each=items(3))).play()

    assert player.path == ["begin", "each", *["item", "a"] * 3, "item", "end"]
    assert [row.order_key.level for row in player.ordered_rows] == list(range(10))
    check_events(player)


def test_an_empty_list_means_one_visit_and_no_pass():
    player = Player(EACH, script_of(each=items(0))).play()

    assert player.path == ["begin", "each", "item", "end"]


def test_a_loop_is_tested_before_each_pass():
    assert Player(LOOP, script_of(visit=rounds(0))).play().path == ["begin", "loop", "visit", "end"]
    assert Player(LOOP, script_of(visit=rounds(2))).play().path == [
        "begin",
        "loop",
        *["visit", "a"] * 2,
        "visit",
        "end",
    ]


def test_container_finishes_after_its_last_visit_and_before_its_downstream_starts():
    short_events = Player(EACH, script_of(each=items(1))).play().short_events

    assert short_events[-5:] == ["-item", "-each", "+end", "-end", "workflow_finished"]
    assert short_events.count("+each") == short_events.count("-each") == 1


def test_a_pass_with_several_leaves_ends_when_all_are_done():
    canvas = canvas_of("begin -> each -> end", "each: item -> a, b; b -> c -> d", each=IN_ORDER)
    player = Player(canvas, script_of(each=items(2))).begin()
    player.report("begin").report("each").report("item")

    player.report("a").report("b").report("c")
    assert [row.node for row in player.rows.values()].count("item") == 1
    player.report("d")

    assert player.busy_nodes == ["item"]
    assert player.row("item", (("each", 0, 1),)).order_key.level == 6


def test_a_router_in_a_body_that_chooses_nothing_ends_the_pass():
    canvas = canvas_of("begin -> each -> end", "each: item -> pick -> a, b")
    player = Player(canvas, script_of(each=items(2), pick=routed_to())).play()

    assert player.path == ["begin", "each", "item", "pick", "item", "pick", "item", "end"]


def test_item_node_without_a_body_is_visited_for_every_item():
    player = Player(canvas_of("begin -> each -> end", "each: item"), script_of(each=items(2))).play()

    assert player.path == ["begin", "each", "item", "item", "item", "end"]


def test_a_body_node_may_lead_back_to_the_item_node():
    canvas = canvas_of("begin -> loop -> end", "loop: visit -> a -> visit")
    player = Player(canvas, script_of(visit=rounds(2))).play()

    assert player.path == ["begin", "loop", "visit", "a", "visit", "a", "visit", "end"]


def test_node_after_a_container_is_one_level_below_its_last_visit():
    canvas = canvas_of("begin -> loop, other; loop -> after; other -> b", "loop: visit -> a")
    player = Player(canvas, script_of(visit=rounds(1))).play()

    assert [(row.node, row.order_key.level) for row in player.ordered_rows][-2:] == [("visit", 4), ("after", 5)]


def test_container_that_is_entered_again_counts_its_items_from_zero():
    canvas = canvas_of("begin -> each -> pick -> each, end", "each: item -> a")
    player = Player(canvas, script_of(each=items(1), pick=[routed_to("each"), routed_to("end")])).play()

    assert player.path == ["begin", *["each", "item", "a", "item", "pick"] * 2, "end"]
    assert [scope_text(row.scope) for row in player.ordered_rows if row.node == "a"] == ["each#0.0", "each#1.0"]


def test_a_container_inside_of_a_body_is_a_leaf_of_it():
    canvas = canvas_of("begin -> loop -> end", "loop: visit -> each", "each: item -> a")
    player = Player(canvas, script_of(visit=rounds(2), each=items(1))).play()

    assert player.path == ["begin", "loop", *["visit", "each", "item", "a", "item"] * 2, "visit", "end"]
    check_events(player)


def test_node_after_an_inner_container_belongs_to_the_same_pass():
    canvas = canvas_of("begin -> loop -> end", "loop: visit -> each -> b", "each: item -> a")
    player = Player(canvas, script_of(visit=rounds(1), each=items(2))).play()

    assert player.path == ["begin", "loop", "visit", "each", *["item", "a"] * 2, "item", "b", "visit", "end"]


# -- exits -----------------------------------------------------------------------------------------------------------
def test_an_exit_leaves_its_loop_without_another_visit():
    canvas = canvas_of("begin -> loop -> end", "loop: visit -> pick -> a, exit")
    script = script_of(visit=rounds(9), pick=lambda at: routed_to("exit" if at.item == 1 else "a"))

    player = Player(canvas, script).play()

    assert player.path == ["begin", "loop", "visit", "pick", "a", "visit", "pick", "exit", "end"]
    assert player.is_before("-exit", "-loop")
    assert player.is_before("-loop", "+end")


@pytest.mark.parametrize("seed", range(6))
def test_exit_waits_for_the_other_branches_of_its_pass(seed: int):
    canvas = canvas_of("begin -> loop -> end", "loop: visit -> exit, a; a -> b -> exitb")
    player = Player(canvas, script_of(visit=rounds(9)), seeded_random(seed)).play()

    assert player.path == ["begin", "loop", "visit", "exit", "a", "b", "exitb", "end"]
    assert player.row("end").order_key.level == 6  # below the later exit


def test_an_exit_in_an_iteration_does_nothing():
    canvas = canvas_of("begin -> each -> end", "each: item -> exit -> a")
    player = Player(canvas, script_of(each=items(2), exit=Finished())).play()

    assert player.path == ["begin", "each", *["item", "exit", "a"] * 2, "item", "end"]


def test_exit_leaves_only_the_innermost_loop():
    canvas = canvas_of("begin -> loop -> end", "loop: visit -> loopb -> b", "loopb: visitb -> exit")
    player = Player(canvas, script_of(visit=rounds(2), visitb=rounds(9))).play()

    assert player.path == ["begin", "loop", *["visit", "loopb", "visitb", "exit", "b"] * 2, "visit", "end"]


# -- parallel items --------------------------------------------------------------------------------------------------
def test_items_run_in_parallel_up_to_the_concurrency_of_the_canvas():
    player = Player(EACH, script_of(each=items(5, at_once=3))).begin()

    player.report("begin").report("each")

    assert player.busy_nodes == ["item", "item", "item"]


def test_next_parallel_item_starts_when_one_has_ended():
    player = Player(EACH, script_of(each=items(3, at_once=2))).begin().report("begin").report("each")

    player.report("item", scope=(("each", 0, 1),)).report("a", scope=(("each", 0, 1),))

    assert [scope_text(row.scope) for row in player.ordered_rows if row.node == "item"] == [
        "each#0.0",
        "each#0.1",
        "each#0.2",
    ]


@pytest.mark.parametrize("seed", range(4))
def test_parallel_items_are_collected_once_and_in_item_order(seed: int):
    player = Player(EACH, script_of(each=items(3, at_once=3)), seeded_random(seed)).play()

    scopes = [scope_text(row.scope) for row in player.ordered_rows if row.node in ("item", "a")]
    assert scopes == [*(f"each#0.{item}" for item in (0, 0, 1, 1, 2, 2)), "each#0.3"]
    assert player.path[-1] == "end"
    check_events(player)


def test_parallel_iteration_without_items_still_collects_its_outputs():
    player = Player(EACH, script_of(each=items(0, at_once=4))).play()

    assert player.path == ["begin", "each", "item", "end"]


def test_parallel_items_read_the_values_of_the_revision_in_which_they_started():
    player = Player(EACH, script_of(each=items(2, at_once=2))).begin().report("begin")
    revision = player.revision

    player.report("each")

    assert [row.limits for row in player.ordered_rows if row.node == "item"] == [(("", revision + 1),)] * 2


@pytest.mark.parametrize("seed", range(8))
def test_first_failed_item_in_item_order_gives_the_containers_error(seed: int):
    canvas = canvas_of("begin -> each -> end", "each: item -> a -> b", "rescue", each=goto("rescue"))
    script = script_of(each=items(5, at_once=3), b=fails_in(1, 2, 4))

    player = Player(canvas, script, seeded_random(seed)).play()

    assert player.status is RunStatus.SUCCEEDED
    assert [event.body for event in player.events if event.node_id == "each"][-1] == {"error": "item 1: broken 1"}
    assert player.path[-1] == "rescue"
    assert "end" not in player.path


@pytest.mark.parametrize("reported", [[("a", "b")], [("a",), ("b",)], [("b",), ("a",)]])
def test_later_of_two_branches_that_fail_in_one_level_of_an_item_gives_the_containers_error(
    reported: list[tuple[str, ...]],
):
    canvas = canvas_of("begin -> each -> end", "each: item -> a, b", "rescue", each=goto("rescue"))
    script = script_of(each=items(1, at_once=2), a=failed("broken in a"), b=failed("broken in b"))
    player = Player(canvas, script).begin().report("begin").report("each").report("item")
    for node in ("a", "b"):
        player.claim(node, scope=(("each", 0, 0),))

    for nodes in reported:
        player.report(*nodes)

    player.play()
    assert [event.body for event in player.events if event.node_id == "each"][-1] == {"error": "item 0: broken in b"}


def test_no_further_parallel_items_start_after_a_failed_item():
    script = script_of(each=items(9, at_once=2), a=fails_in(0))

    player = Player(EACH, script, seeded_random(1)).play()

    assert player.status is RunStatus.FAILED
    assert player.error == "Node each (Iteration): item 0: broken 0"
    assert len({row.scope for row in player.rows.values() if row.scope}) <= 3


def test_default_of_a_container_is_streamed_when_an_item_fails():
    canvas = canvas_of("begin -> each -> end", "each: item -> a", each=default("sorry"))
    player = Player(canvas, script_of(each=items(3, at_once=3), a=fails_in(1))).play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.streamed_nodes == ["each"]
    assert list(player.texts.values()) == ["sorry"]
    assert player.path[-1] == "end"
    check_events(player)


def test_failure_in_a_loop_inside_a_parallel_item_fails_the_item():
    canvas = canvas_of(
        "begin -> each -> end", "each: item -> loop -> b", "loop: visit -> a", "rescue", each=goto("rescue")
    )
    script = script_of(each=items(2, at_once=2), a=failed("deep"))

    player = Player(canvas, script).play()

    assert player.path[-1] == "rescue"
    assert "b" not in player.path
    check_events(player)


def test_failure_of_the_collecting_visit_fails_the_container():
    canvas = canvas_of("begin -> each -> end", "each: item -> a", "rescue", each=goto("rescue"))
    script = script_of(each=items(0, at_once=2), item=failed("collecting"))

    player = Player(canvas, script).play()

    assert player.path == ["begin", "each", "item", "rescue"]


def test_failed_item_of_a_sequential_iteration_ends_the_run():
    player = Player(EACH, script_of(each=items(3), a=fails_in(1))).play()

    assert player.status is RunStatus.FAILED
    assert player.error == "Node a (StringTransform): broken 1"
    assert player.path == ["begin", "each", "item", "a", "item", "a"]


def test_exit_inside_a_parallel_item_leaves_only_the_inner_loop():
    canvas = canvas_of("begin -> each -> end", "each: item -> loop -> b", "loop: visit -> exit")
    player = Player(canvas, script_of(each=items(2, at_once=2), visit=rounds(5))).play()

    assert player.path.count("exit") == player.path.count("b") == 2
    assert player.path[-1] == "end"
    check_events(player)


def test_nested_parallel_items_are_in_item_order():
    canvas = canvas_of("begin -> each -> end", "each: item -> eachb", "eachb: itemb -> a")
    script = script_of(each=items(2, at_once=2), eachb=items(2, at_once=2))

    player = Player(canvas, script, seeded_random(3)).play()

    assert [scope_text(row.scope) for row in player.ordered_rows if row.node == "a"] == [
        f"each#0.{outer}/eachb#0.{inner}" for outer in (0, 1) for inner in (0, 1)
    ]
    check_events(player)


def test_exit_starts_after_the_other_nodes_of_its_pass():
    canvas = canvas_of("begin -> loop -> end", "loop: visit -> a, exit; a -> b, exitb")
    player = Player(canvas, script_of(visit=rounds(5))).begin().report("begin").report("loop").report("visit")

    assert player.busy_nodes == ["a"]
    player.report("a")
    assert player.busy_nodes == ["b"]
    player.report("b")
    assert player.busy_nodes == ["exit"]

    assert player.play().path == ["begin", "loop", "visit", "a", "exit", "b", "exitb", "end"]
    check_events(player)


def test_script_of_an_item_node_receives_the_number_of_its_pass():
    seen: list[tuple[str, int]] = []

    def visit(at: NodeAttempt) -> Outcome:
        seen.append((scope_text(at.scope), at.item))
        return NextIteration() if at.item < 2 else ContainerExited()

    Player(LOOP, script_of(visit=visit)).play()

    assert seen == [("loop#0.0", 0), ("loop#0.1", 1), ("loop#0.2", 2)]


def test_run_has_at_most_max_running_ready_activations():
    canvas = canvas_of("begin -> a, b, c, d -> end")
    player = Player(canvas, max_running=2).begin()

    player.report("begin")
    assert [(row.node, str(row.status)) for row in player.ordered_rows[1:]] == [
        ("a", "ready"),
        ("b", "ready"),
        ("c", "queued"),
        ("d", "queued"),
    ]
    player.report("b")

    assert player.row("c").status == "ready"
    assert player.play().path == ["begin", "a", "b", "c", "d", "end"]
