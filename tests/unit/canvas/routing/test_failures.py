"""What a failure leads to: another attempt, a goto, a streamed default, or the end of the run (engine 4.5)."""

from dataclasses import replace

import pytest

from canvas.outcome import POSTPONED, UNKNOWN_OUTCOME, Failed
from canvas.routing.failure_routing import MAX_CRASHES
from canvas.state.run_state import ActivationStatus, RunStatus
from tests.builders import (
    canvas_of,
    default,
    default_outcome,
    failed,
    goto,
    items,
    lost_once,
    rounds,
    script_of,
    seeded_random,
)
from tests.listener import check_events
from tests.player import Player


# -- another attempt -------------------------------------------------------------------------------------------------
def test_node_of_a_lost_worker_is_retried_as_the_same_activation():
    player = Player(canvas_of("begin -> a -> end"), script_of(a=lost_once)).play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.row("a").attempt == 2
    assert player.short_events.count("+a") == player.short_events.count("-a") == 1


def test_node_fails_after_three_lost_workers():
    player = Player(canvas_of("begin -> a -> end"), script_of(a=failed("lease lost", retryable=True))).play()

    assert player.status is RunStatus.FAILED
    assert player.row("a").attempt == MAX_CRASHES
    assert player.error == "Node a (StringTransform): lease lost"


def test_a_join_waits_for_a_retry():
    player = Player(canvas_of("begin -> a, b -> end"), script_of(a=lost_once)).begin().report("begin")

    player.report("a").report("b")

    assert player.busy_nodes == ["a"]


def test_postponed_attempt_is_retried_without_a_message_reset():
    canvas = canvas_of("begin -> model -> say")
    postponed = Failed("waits for the rate limit", POSTPONED, retryable=True, retry_in=7.0)
    player = Player(canvas, lambda at: postponed if at.node == "model" and at.attempt == 1 else default_outcome(at))

    player.play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.row("model").attempt == 2
    assert "message_reset" not in [event.name for event in player.events]


# -- goto ------------------------------------------------------------------------------------------------------------
def test_a_goto_replaces_the_edges_of_the_failed_node():
    canvas = canvas_of("begin -> a -> b; rescue -> end", a=goto("rescue"))
    player = Player(canvas, script_of(a=failed("no"))).play()

    assert player.path == ["begin", "a", "rescue", "end"]
    assert player.events[4].body == {"error": "no"}
    check_events(player)


def test_a_goto_may_name_several_nodes_in_order():
    canvas = canvas_of("begin -> a; x; y", a=goto("y", "x", "y"))

    assert Player(canvas, script_of(a=failed())).play().path == ["begin", "a", "y", "x"]


def test_a_goto_inside_of_a_body_stays_in_the_pass():
    canvas = canvas_of("begin -> each -> end", "each: item -> a -> b; rescue -> c", a=goto("rescue"))
    script = script_of(each=items(2), a=lambda at: failed() if at.item == 0 else default_outcome(at))

    assert Player(canvas, script).play().path == [
        *("begin", "each", "item", "a", "rescue", "c"),
        *("item", "a", "b", "item", "end"),
    ]


def test_goto_out_of_a_body_exits_the_container_and_skips_its_downstream():
    canvas = canvas_of("begin -> each -> end; rescue -> bye", "each: item -> a, b", a=goto("rescue"))
    script = script_of(each=items(5), a=lambda at: failed() if at.item == 1 else default_outcome(at))

    player = Player(canvas, script).play()

    assert player.path == ["begin", "each", *["item", "a", "b"] * 2, "rescue", "bye"]
    assert player.status is RunStatus.SUCCEEDED
    check_events(player)


def test_a_goto_out_of_two_bodies_leaves_both_containers():
    canvas = canvas_of("begin -> loop -> end; rescue", "loop: visit -> each -> b", "each: item -> a", a=goto("rescue"))
    player = Player(canvas, script_of(a=failed(), visit=rounds(3))).play()

    assert player.path == ["begin", "loop", "visit", "each", "item", "a", "rescue"]
    check_events(player)


@pytest.mark.parametrize("seed", range(4))
def test_goto_out_of_a_parallel_item_lets_the_other_items_finish(seed: int):
    canvas = canvas_of("begin -> each -> end; rescue", "each: item -> a", a=goto("rescue"))
    script = script_of(each=items(3, at_once=3), a=lambda at: failed() if at.item == 1 else default_outcome(at))

    player = Player(canvas, script, seeded_random(seed)).play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.path.count("a") == 3
    assert {"rescue", "end"} <= set(player.path)


def test_goto_to_a_node_before_its_container_enters_the_container_again():
    canvas = canvas_of("begin -> a -> loop -> end", "loop: visit -> b", b=goto("a"))
    player = Player(
        canvas, script_of(visit=rounds(1), b=lambda at: failed() if at.scope[0][1] == 0 else default_outcome(at))
    )

    assert player.play().path == ["begin", *["a", "loop", "visit", "b"] * 2, "visit", "end"]


def test_failed_message_with_a_goto_closes_its_stream():
    canvas = canvas_of("begin -> say -> a; rescue", say=goto("rescue"))
    player = Player(canvas, script_of(say=failed("no"))).play()

    assert player.path == ["begin", "say", "rescue"]
    assert player.short_events[3:6] == ["+say", "!say", "-say"]
    check_events(player)


# -- default ---------------------------------------------------------------------------------------------------------
def test_default_is_streamed_before_node_finished_and_the_run_continues():
    canvas = canvas_of("begin -> a -> end", a=default("sorry"))
    player = Player(canvas, script_of(a=failed("no"))).play()

    assert player.short_events[3:] == ["+a", "!a", "-a", "+end", "-end", "workflow_finished"]
    assert player.texts == {player.row("a").id: "sorry"}
    assert next(event.body for event in player.events if event.node_id == "a" and event.body) == {"error": "no"}


def test_default_of_a_router_is_streamed_and_follows_no_edge():
    canvas = canvas_of("begin -> pick -> a, b", pick=default("sorry"))

    player = Player(canvas, script_of(pick=failed())).play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.path == ["begin", "pick"]


def test_default_that_is_not_a_text_is_streamed_as_text():
    canvas = canvas_of("begin -> a", a={"exception_default_value": 7})

    assert list(Player(canvas, script_of(a=failed())).play().texts.values()) == ["7"]


def test_goto_takes_precedence_over_a_default():
    canvas = canvas_of("begin -> a; rescue", a={**default("sorry"), **goto("rescue")})
    player = Player(canvas, script_of(a=failed())).play()

    assert player.path == ["begin", "a", "rescue"]
    assert player.streamed_nodes == []


def test_defaults_and_messages_are_streamed_in_canonical_order():
    canvas = canvas_of("begin -> a, say, b", a=default("sorry"), b=default("sorry too"))
    player = Player(canvas, script_of(a=failed(), b=failed())).begin().report("begin")

    player.report("b").report("say")
    assert player.streamed_nodes == []
    player.report("a")

    assert player.streamed_nodes == ["a", "say", "b"]
    check_events(player)


@pytest.mark.parametrize("has_written", [False, True])
def test_default_of_a_failed_writer_is_streamed_before_its_message(has_written: bool):
    canvas = canvas_of("begin -> model -> say", model=default("sorry"))
    outcome = Failed("no", outputs={"has_written": True} if has_written else {})
    player = Player(canvas, script_of(model=outcome)).begin().report("begin")
    assert player.short_events[-1] == "+say"  # the stream is open for the model

    player.play()

    assert player.streamed_nodes == ["model", "say"]
    assert player.short_events.count("message_reset") == has_written
    assert player.status is RunStatus.SUCCEEDED
    check_events(player)


def test_default_of_a_failed_message_is_streamed_in_its_own_stream():
    canvas = canvas_of("begin -> model -> say -> end", say=default("sorry"))
    player = Player(canvas, script_of(say=failed("no"))).play()

    assert player.streamed_nodes == ["say"]
    assert player.short_events[3:] == [
        *("+model", "+say", "!say", "-model", "-say", "+end"),
        "-end",
        "workflow_finished",
    ]
    check_events(player)


# -- the end of the run ----------------------------------------------------------------------------------------------
def test_uncaught_failure_ends_the_run():
    player = Player(canvas_of("begin -> a -> b"), script_of(a=failed("no"))).play()

    assert player.status is RunStatus.FAILED
    assert player.error == "Node a (StringTransform): no"
    assert player.short_events[3:] == ["+a", "-a", "run_failed"]
    assert player.events[-1].body == {"error": "no", "code": "node_failure"}
    check_events(player)


def test_failing_level_is_completed_and_later_ones_are_dropped():
    player = Player(canvas_of("begin -> a, b, c; b -> d; c -> e"), script_of(a=failed())).begin().report("begin")
    player.report("c")  # "e" is ready when the failure comes

    player.report("a")
    assert player.status is RunStatus.STOPPING
    assert player.row("e").status is ActivationStatus.CLOSED
    player.report("b")

    assert player.status is RunStatus.FAILED
    assert player.reported_nodes == ["begin", "a", "b", "c"]


def test_join_does_not_start_when_a_failure_drops_its_last_branch():
    canvas = canvas_of("begin -> a, b, join; b -> c -> join; join -> end")
    player = Player(canvas, script_of(a=failed("broken"))).begin().report("begin")

    player.report("a").report("b").play()

    assert player.path == ["begin", "a", "b"]
    assert player.error == "Node a (StringTransform): broken"


def test_nodes_before_the_failing_level_are_completed():
    canvas = canvas_of("begin -> a, b; a -> c; b -> d -> e")
    player = Player(canvas, script_of(c=failed())).begin().report("begin").report("a").report("c")

    player.play()

    assert player.reported_nodes == ["begin", "a", "b", "c", "d"]


def test_reports_of_a_later_level_activate_nothing_after_a_failure():
    player = Player(canvas_of("begin -> a, b; b -> c -> d"), script_of(a=failed())).begin().report("begin").report("b")
    player.claim("c")

    player.report("a").report("c")

    assert player.status is RunStatus.FAILED
    assert player.reported_nodes == ["begin", "a", "b", "c"]


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_last_of_several_failures_of_a_level_gives_the_error(order: tuple[str, str]):
    player = Player(canvas_of("begin -> a, b"), script_of(a=failed("first"), b=failed("last"))).begin().report("begin")

    player.report(order[0]).report(order[1])

    assert player.error == "Node b (StringTransform): last"


def test_failure_of_the_earliest_level_counts_whenever_it_is_reported():
    canvas = canvas_of("begin -> a, b; b -> c")
    player = Player(canvas, script_of(a=failed("early"), c=failed("late"))).begin().report("begin").report("b")

    player.report("c").report("a")

    assert player.error == "Node a (StringTransform): early"


def test_default_does_not_save_a_run_after_an_earlier_failure():
    canvas = canvas_of("begin -> a, b; b -> c", c=default("sorry"))
    player = Player(canvas, script_of(a=failed("early"), c=failed("late"))).begin().report("begin").report("b")
    player.claim("c")

    player.report("a").report("c")

    assert player.streamed_nodes == []
    assert player.error == "Node a (StringTransform): early"


def test_texts_of_the_failing_level_are_streamed_and_later_ones_are_not():
    canvas = canvas_of("begin -> a, say, b; b -> saylate")
    player = Player(canvas, script_of(a=failed())).begin().report("begin").report("b", "say").report("a")

    assert player.status is RunStatus.FAILED
    assert player.streamed_nodes == ["say"]
    check_events(player)


def test_open_form_is_closed_when_the_run_fails():
    canvas = canvas_of("begin -> form, a")
    player = Player(canvas, script_of(a=failed())).begin().report("begin").report("form").report("a")

    assert player.status is RunStatus.FAILED
    assert player.row("form").status is ActivationStatus.CLOSED


def test_error_of_a_run_names_node_and_component_unless_it_does_so_already():
    canvas = canvas_of("begin -> a")

    assert canvas.error_of("a", "HTTP 401", "http_failed") == "Node a (StringTransform): HTTP 401"
    assert canvas.error_of("a", "Node a (StringTransform): HTTP 401") == "Node a (StringTransform): HTTP 401"
    assert (
        canvas.error_of("a", "Whether a has happened is not known.", UNKNOWN_OUTCOME)
        == "Whether a has happened is not known."
    )
    assert canvas.error_of("", "The form was not answered in time.") == "The form was not answered in time."


def test_component_is_left_out_of_an_error_where_the_id_of_the_node_has_it():
    node = replace(canvas_of("begin -> a").node("a"), id="TavilySearch:0", name="Search", component="TavilySearch")

    assert node.title == 'Node "Search" (TavilySearch:0)'
    assert replace(node, name="").title == "Node TavilySearch:0"
    assert replace(node, id="x1").title == 'Node "Search" (x1, TavilySearch)'
