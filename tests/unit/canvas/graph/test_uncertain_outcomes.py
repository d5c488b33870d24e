"""Nobody knows whether a node has acted: its run fails, takes the risk, or asks a person
(canvas/graph/uncertain_outcomes.py).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.events.run_events import MESSAGE_RESET, RUN_FAILED
from canvas.graph.canvas import Canvas, Node, compile_canvas
from canvas.graph.parallel_items import pipelined_levels
from canvas.outcome import UNKNOWN_OUTCOME, UNKNOWN_TEXT, Failed, Outcome
from canvas.state.run_state import ActivationStatus, RunStatus
from canvas.validation.check import check
from tests.builders import At, Script, canvas_of, default, document_of, goto, items, rounds, script_of, seeded, usual
from tests.canvases_at_random import Story, stories
from tests.listener import check_events
from tests.player import Player

ASK, RETRY, FAIL = {"on_unknown": "ask"}, {"on_unknown": "retry"}, {"on_unknown": "fail"}
LOST = Failed(UNKNOWN_TEXT, UNKNOWN_OUTCOME)


def in_doubt(*nodes: str, attempts: int = 1, otherwise: Script = usual) -> Script:
    """The first workers of these nodes are lost while they act."""

    def script(at: At) -> Outcome:
        return LOST if at.node in nodes and at.attempt <= attempts else otherwise(at)

    return script


def asked(player: Player) -> Mapping[str, Any]:
    """What the last question was."""
    return next(event.body for event in reversed(player.events) if event.name == "user_inputs")


def failure(player: Player) -> Mapping[str, Any]:
    return next(event.body for event in player.events if event.name == RUN_FAILED)


# -- what an author chooses -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("params", "usual_of_canvas", "chosen"),
    [
        ({}, {}, "fail"),
        ({}, ASK, "ask"),
        (RETRY, ASK, "retry"),
        ({"on_unknown": ""}, ASK, "ask"),
        ({"on_unknown": "perhaps"}, ASK, "ask"),
        ({"on_unknown": ["ask"]}, {"on_unknown": 7}, "fail"),
    ],
)
def test_a_node_follows_its_own_choice_else_that_of_the_canvas_else_it_fails(
    params: dict[str, Any], usual_of_canvas: dict[str, Any], chosen: str
):
    document = replace(document_of("begin -> act", act=params), raw=usual_of_canvas)

    assert compile_canvas(document).node("act").on_unknown == chosen


def test_what_is_no_choice_is_found_on_nodes_and_on_the_canvas():
    document = document_of("begin -> act, other", act={"on_unknown": "perhaps"}, other=ASK)

    _, warnings = check(replace(document, raw={"on_unknown": True}))

    found = [(finding.node, finding.field) for finding in warnings if finding.code == "unknown_on_unknown"]
    assert found == [(None, "on_unknown"), ("act", "on_unknown")]


# -- fail --------------------------------------------------------------------------------------------------------------
def test_by_default_the_run_fails_and_says_what_is_not_known_and_what_to_do():
    player = Player(canvas_of("begin -> act -> after"), in_doubt("act")).play()

    assert player.status is RunStatus.FAILED
    assert "after" not in player.path
    assert failure(player) == {
        "error": "It is not known whether act has happened: its worker was lost while it ran. "
        "Check it, and start the run again if the action is needed.",
        "code": UNKNOWN_OUTCOME,
    }


def test_an_unknown_outcome_is_a_failure_that_the_author_may_have_provided_for():
    elsewhere = Player(canvas_of("begin -> act -> a; b", act=goto("b")), in_doubt("act")).play()
    heard = Player(canvas_of("begin -> act -> a", act=default("Sorry.")), in_doubt("act")).play()

    assert (elsewhere.status, elsewhere.path) == (RunStatus.SUCCEEDED, ["begin", "act", "b"])
    assert (heard.status, heard.path, heard.texts) == (
        RunStatus.SUCCEEDED,
        ["begin", "act", "a"],
        {heard.row("act").id: "Sorry."},
    )


# -- retry -------------------------------------------------------------------------------------------------------------
def test_an_author_may_take_the_risk_of_doing_it_twice():
    player = Player(canvas_of("begin -> act -> after", act=RETRY), in_doubt("act")).play()

    assert (player.status, player.row("act").attempt) == (RunStatus.SUCCEEDED, 2)


def test_even_then_the_third_lost_worker_is_the_last():
    player = Player(canvas_of("begin -> act -> after", act=RETRY), in_doubt("act", attempts=9)).play()

    assert (player.status, player.row("act").attempt) == (RunStatus.FAILED, 3)
    assert failure(player)["code"] == UNKNOWN_OUTCOME


# -- ask ---------------------------------------------------------------------------------------------------------------
def test_a_run_that_is_to_ask_waits_with_a_form_of_its_own_when_nothing_else_moves():
    player = Player(canvas_of("begin -> act, a; a -> b", act=ASK), in_doubt("act")).begin()
    player.report("begin").report("act")
    assert player.status is RunStatus.RUNNING

    player.report("a").report("b")

    assert player.status is RunStatus.WAITING
    assert player.row("act").status is ActivationStatus.WAITING
    assert list(asked(player)["inputs"]) == ["act.outcome", "act.outputs"]
    assert asked(player)["inputs"]["act.outcome"]["options"] == ["happened", "again"]
    assert asked(player)["tips"].startswith("It is not known whether act has happened")
    assert list(asked(player)["forms"]) == ["act"]


def test_what_has_happened_is_finished_and_its_downstream_goes_on():
    player = Player(canvas_of("begin -> act -> after", act=ASK), in_doubt("act")).play()

    player.answer(happened=["act"]).play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.row("act").attempt == 1
    assert player.story[-4:] == ["-act", "+after", "-after", "workflow_finished"]
    check_events(player)


def test_what_is_to_be_done_again_gets_another_attempt_and_may_ask_again():
    player = Player(canvas_of("begin -> act -> after", act=ASK), in_doubt("act", attempts=2)).play()

    player.answer().play()
    assert player.status is RunStatus.WAITING
    player.answer().play()

    assert (player.status, player.row("act").attempt) == (RunStatus.SUCCEEDED, 3)
    assert player.story.count("+act") == 1
    check_events(player)


def test_a_join_waits_for_the_answer():
    player = Player(canvas_of("begin -> act, b -> end", act=ASK), in_doubt("act")).play()
    assert "end" not in player.path

    player.answer(happened=["act"]).play()

    assert player.path == ["begin", "act", "b", "end"]


def test_questions_are_answered_one_by_one_and_the_rest_are_asked_once_more():
    player = Player(canvas_of("begin -> one, two -> end", one=ASK, two=ASK), in_doubt("one", "two")).play()

    player.answer(happened=["one"], unsaid=["two"])

    assert player.status is RunStatus.WAITING
    assert list(asked(player)["forms"]) == ["two"]
    player.answer().play()
    assert (player.status, player.row("one").attempt, player.row("two").attempt) == (RunStatus.SUCCEEDED, 1, 2)


def test_a_form_of_the_canvas_is_not_answered_by_what_is_said_of_an_outcome():
    player = Player(canvas_of("begin -> act, form -> end", act=ASK), in_doubt("act")).play()
    assert list(asked(player)["forms"]) == ["act", "form"]

    player.answer(unsaid=["act"]).play()

    assert player.row("form").status is ActivationStatus.DONE
    assert player.status is RunStatus.WAITING
    assert list(asked(player)["forms"]) == ["act"]


def test_items_side_by_side_ask_at_once_each_under_its_number():
    canvas = canvas_of("begin -> each -> end", "each: item -> act -> b", each={"max_concurrency": 3}, act=ASK)
    player = Player(canvas, in_doubt("act", otherwise=script_of(each=items(3, at_once=3)))).play()
    assert player.status is RunStatus.WAITING
    assert sorted(asked(player)["forms"]) == ["act[0]", "act[1]", "act[2]"]

    player.answer(happened=["act"]).play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.path.count("b") == 3


def test_a_loop_asks_in_the_pass_in_which_it_happened():
    canvas = canvas_of("begin -> loop -> end", "loop: visit -> act", act=ASK)
    script = script_of(visit=rounds(2))
    player = Player(canvas, lambda at: LOST if at.node == "act" and at.item == 1 and at.attempt == 1 else script(at))

    assert list(asked(player.play())["forms"]) == ["act[1]"]
    assert player.answer().play().status is RunStatus.SUCCEEDED


def test_stream_of_a_node_with_unknown_outcome_is_truncated_and_reopened():
    canvas = canvas_of("begin -> model -> say", model=ASK)
    player = Player(canvas, in_doubt("model")).begin().report("begin")
    assert player.open_stream_id is not None

    player.report("model")
    assert (player.status, player.open_stream_id) == (RunStatus.WAITING, None)
    assert any(event.name == MESSAGE_RESET for event in player.events)
    player.answer()

    assert player.open_stream_id == player.row("model").stream_id
    assert player.play().spoken == ["say"]
    check_events(player)


def test_another_stream_opens_while_a_writer_waits_for_the_answer():
    canvas = canvas_of("begin -> model -> say; begin -> a -> b -> sayb", model=ASK)
    player = Player(canvas, in_doubt("model")).play()

    assert (player.status, player.spoken) == (RunStatus.WAITING, ["sayb"])
    assert player.answer(happened=["model"]).play().spoken == ["sayb", "say"]


def test_nothing_is_asked_in_a_run_that_fails_elsewhere():
    script = in_doubt("act", otherwise=script_of(a=Failed("broken")))
    player = Player(canvas_of("begin -> act, a", act=ASK), script).begin().report("begin").report("a").report("act")

    assert player.status is RunStatus.FAILED
    assert "user_inputs" not in player.story


def test_a_run_that_asks_can_be_cancelled():
    player = Player(canvas_of("begin -> act", act=ASK), in_doubt("act")).play().cancel()

    assert (player.status, player.row("act").status) == (RunStatus.CANCELLED, ActivationStatus.CLOSED)


# -- whatever the canvas -----------------------------------------------------------------------------------------------
@settings(deadline=None, max_examples=25)
@given(stories(), st.integers(0, 9999), st.integers(0, 9999), st.sampled_from(("ask", "retry", "fail")))
def test_a_run_with_unknown_outcomes_ends_or_waits_for_a_person(story: Story, seed: int, doubt: int, policy: str):
    canvas = with_policy(story.canvas, policy)
    rng = seeded(doubt)
    lost = {node.id for node in may_act(canvas) if rng.random() < 0.4}
    happens = {node for node in lost if rng.random() < 0.5}
    player = Player(canvas, in_doubt(*lost, otherwise=story.script), seeded(seed), watched=True)

    while not player.play().status.is_over:
        assert player.status is RunStatus.WAITING
        player.answer(happened=happens)

    assert player.status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
    assert policy == "fail" or UNKNOWN_OUTCOME not in str(player.events)
    check_events(player)


def may_act(canvas: Canvas) -> list[Node]:
    """Nodes that may be unsafe: nothing that is stands where items may overlap (canvas/graph/parallel_items.py)."""
    overlapping = {node.number for node in canvas.nodes if pipelined_levels(canvas, node)}
    return [
        node
        for node in canvas.nodes
        if node.component in ("StringTransform", "LLM") and overlapping.isdisjoint(canvas.containers_of(node.number))
    ]


def with_policy(canvas: Canvas, policy: Any) -> Canvas:
    return replace(canvas, nodes=tuple(replace(node, on_unknown=policy) for node in canvas.nodes))
