"""Unknown outcomes: the run fails, runs the node again, or asks a person (canvas/graph/uncertain_outcomes.py)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.events.run_events import MESSAGE_RESET, RUN_FAILED
from canvas.graph import uncertain_outcomes
from canvas.graph.canvas import Canvas, Node, compile_canvas
from canvas.graph.parallel_items import pipelined_levels
from canvas.outcome import UNKNOWN_OUTCOME, UNKNOWN_TEXT, Failed, Outcome
from canvas.state.run_state import ActivationStatus, RunStatus
from canvas.validation.check import check
from tests.builders import (
    NodeAttempt,
    Script,
    canvas_of,
    default,
    default_outcome,
    document_of,
    goto,
    items,
    rounds,
    script_of,
    seeded_random,
)
from tests.canvases_at_random import CanvasCase, random_cases
from tests.listener import check_events
from tests.player import Player

ASK, RETRY, FAIL = {"on_unknown": "ask"}, {"on_unknown": "retry"}, {"on_unknown": "fail"}
LOST = Failed(UNKNOWN_TEXT, UNKNOWN_OUTCOME)


def lost_workers(*nodes: str, attempts: int = 1, otherwise: Script = default_outcome) -> Script:
    """Return a script in which the first workers of these nodes are lost."""

    def script(at: NodeAttempt) -> Outcome:
        return LOST if at.node in nodes and at.attempt <= attempts else otherwise(at)

    return script


def shown_forms(player: Player) -> Mapping[str, Any]:
    """Return the forms that were shown last."""
    return next(event.body for event in reversed(player.events) if event.name == "user_inputs")


def failure(player: Player) -> Mapping[str, Any]:
    return next(event.body for event in player.events if event.name == RUN_FAILED)


# -- on_unknown -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("params", "canvas_policy", "expected"),
    [
        ({}, {}, "fail"),
        ({}, ASK, "ask"),
        (RETRY, ASK, "retry"),
        ({"on_unknown": ""}, ASK, "ask"),
        ({"on_unknown": "perhaps"}, ASK, "ask"),
        ({"on_unknown": ["ask"]}, {"on_unknown": 7}, "fail"),
    ],
)
def test_on_unknown_of_a_node_overrides_the_canvas_and_defaults_to_fail(
    params: dict[str, Any], canvas_policy: dict[str, Any], expected: str
):
    document = replace(document_of("begin -> act", act=params), raw=canvas_policy)

    assert compile_canvas(document).node("act").on_unknown == expected


def test_invalid_on_unknown_value_of_a_node_or_canvas_is_a_warning():
    document = document_of("begin -> act, other", act={"on_unknown": "perhaps"}, other=ASK)

    _, warnings = check(replace(document, raw={"on_unknown": True}))

    findings = [(finding.node, finding.field) for finding in warnings if finding.code == "unknown_on_unknown"]
    assert findings == [(None, "on_unknown"), ("act", "on_unknown")]


# -- fail -------------------------------------------------------------------------------------------------------------
def test_run_fails_by_default_with_an_error_that_explains_the_unknown_outcome():
    player = Player(canvas_of("begin -> act -> after"), lost_workers("act")).play()

    assert player.status is RunStatus.FAILED
    assert "after" not in player.path
    assert failure(player) == {
        "error": "It is not known whether act has happened: its worker was lost while it ran. "
        "Check it, and start the run again if the action is needed.",
        "code": UNKNOWN_OUTCOME,
    }


def test_unknown_outcome_follows_the_goto_or_default_of_its_node():
    with_goto = Player(canvas_of("begin -> act -> a; b", act=goto("b")), lost_workers("act")).play()
    with_default = Player(canvas_of("begin -> act -> a", act=default("Sorry.")), lost_workers("act")).play()

    assert (with_goto.status, with_goto.path) == (RunStatus.SUCCEEDED, ["begin", "act", "b"])
    assert (with_default.status, with_default.path, with_default.texts) == (
        RunStatus.SUCCEEDED,
        ["begin", "act", "a"],
        {with_default.row("act").id: "Sorry."},
    )


# -- retry ------------------------------------------------------------------------------------------------------------
def test_node_with_retry_policy_runs_again_after_an_unknown_outcome():
    player = Player(canvas_of("begin -> act -> after", act=RETRY), lost_workers("act")).play()

    assert (player.status, player.row("act").attempt) == (RunStatus.SUCCEEDED, 2)


def test_node_with_retry_policy_fails_after_three_lost_workers():
    player = Player(canvas_of("begin -> act -> after", act=RETRY), lost_workers("act", attempts=9)).play()

    assert (player.status, player.row("act").attempt) == (RunStatus.FAILED, 3)
    assert failure(player)["code"] == UNKNOWN_OUTCOME


# -- ask --------------------------------------------------------------------------------------------------------------
def test_run_with_ask_policy_shows_an_outcome_form_once_all_other_nodes_are_done():
    player = Player(canvas_of("begin -> act, a; a -> b", act=ASK), lost_workers("act")).begin()
    player.report("begin").report("act")
    assert player.status is RunStatus.RUNNING

    player.report("a").report("b")

    assert player.status is RunStatus.WAITING
    assert player.row("act").status is ActivationStatus.WAITING
    assert list(shown_forms(player)["inputs"]) == ["act.outcome", "act.outputs"]
    assert shown_forms(player)["inputs"]["act.outcome"]["options"] == ["happened", "again"]
    assert shown_forms(player)["tips"].startswith("It is not known whether act has happened")
    assert list(shown_forms(player)["forms"]) == ["act"]


def test_node_confirmed_as_happened_is_finished_and_its_downstream_runs():
    player = Player(canvas_of("begin -> act -> after", act=ASK), lost_workers("act")).play()

    player.answer(happened=["act"]).play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.row("act").attempt == 1
    assert player.short_events[-4:] == ["-act", "+after", "-after", "workflow_finished"]
    check_events(player)


def test_node_to_be_run_again_gets_another_attempt_and_may_ask_again():
    player = Player(canvas_of("begin -> act -> after", act=ASK), lost_workers("act", attempts=2)).play()

    player.answer().play()
    assert player.status is RunStatus.WAITING
    player.answer().play()

    assert (player.status, player.row("act").attempt) == (RunStatus.SUCCEEDED, 3)
    assert player.short_events.count("+act") == 1
    check_events(player)


def test_join_waits_for_the_answer_about_an_unknown_outcome():
    player = Player(canvas_of("begin -> act, b -> end", act=ASK), lost_workers("act")).play()
    assert "end" not in player.path

    player.answer(happened=["act"]).play()

    assert player.path == ["begin", "act", "b", "end"]


def test_unanswered_outcome_form_is_shown_again_after_another_one_is_answered():
    player = Player(canvas_of("begin -> one, two -> end", one=ASK, two=ASK), lost_workers("one", "two")).play()

    player.answer(happened=["one"], unanswered=["two"])

    assert player.status is RunStatus.WAITING
    assert list(shown_forms(player)["forms"]) == ["two"]
    player.answer().play()
    assert (player.status, player.row("one").attempt, player.row("two").attempt) == (RunStatus.SUCCEEDED, 1, 2)


def test_answer_to_a_form_node_leaves_the_outcome_form_open():
    player = Player(canvas_of("begin -> act, form -> end", act=ASK), lost_workers("act")).play()
    assert list(shown_forms(player)["forms"]) == ["act", "form"]

    player.answer(unanswered=["act"]).play()

    assert player.row("form").status is ActivationStatus.DONE
    assert player.status is RunStatus.WAITING
    assert list(shown_forms(player)["forms"]) == ["act"]


def test_parallel_items_show_their_outcome_forms_together_by_item_number():
    canvas = canvas_of("begin -> each -> end", "each: item -> act -> b", each={"max_concurrency": 3}, act=ASK)
    player = Player(canvas, lost_workers("act", otherwise=script_of(each=items(3, at_once=3)))).play()
    assert player.status is RunStatus.WAITING
    assert sorted(shown_forms(player)["forms"]) == ["act[0]", "act[1]", "act[2]"]

    player.answer(happened=["act"]).play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.path.count("b") == 3


def test_question_about_an_outcome_counts_items_from_one():
    fields, _ = uncertain_outcomes.question("act", "Act", (("each", 0, 2),))

    assert fields["act[2].outcome"]["name"] == "Has Act (item 3) happened?"


def test_outcome_form_in_a_loop_names_the_pass_of_the_lost_attempt():
    canvas = canvas_of("begin -> loop -> end", "loop: visit -> act", act=ASK)
    script = script_of(visit=rounds(2))
    player = Player(canvas, lambda at: LOST if at.node == "act" and at.item == 1 and at.attempt == 1 else script(at))

    assert list(shown_forms(player.play())["forms"]) == ["act[1]"]
    assert player.answer().play().status is RunStatus.SUCCEEDED


def test_stream_of_a_node_with_unknown_outcome_is_truncated_and_reopened():
    canvas = canvas_of("begin -> model -> say", model=ASK)
    player = Player(canvas, lost_workers("model")).begin().report("begin")
    assert player.open_stream_id is not None

    player.report("model")
    assert (player.status, player.open_stream_id) == (RunStatus.WAITING, None)
    assert any(event.name == MESSAGE_RESET for event in player.events)
    player.answer()

    assert player.open_stream_id == player.row("model").stream_id
    assert player.play().streamed_nodes == ["say"]
    check_events(player)


def test_another_stream_opens_while_a_writer_waits_for_the_answer():
    canvas = canvas_of("begin -> model -> say; begin -> a -> b -> sayb", model=ASK)
    player = Player(canvas, lost_workers("model")).play()

    assert (player.status, player.streamed_nodes) == (RunStatus.WAITING, ["sayb"])
    assert player.answer(happened=["model"]).play().streamed_nodes == ["sayb", "say"]


def test_run_that_fails_elsewhere_shows_no_outcome_form():
    script = lost_workers("act", otherwise=script_of(a=Failed("broken")))
    player = Player(canvas_of("begin -> act, a", act=ASK), script).begin().report("begin").report("a").report("act")

    assert player.status is RunStatus.FAILED
    assert "user_inputs" not in player.short_events


def test_run_that_waits_for_an_outcome_form_can_be_cancelled():
    player = Player(canvas_of("begin -> act", act=ASK), lost_workers("act")).play().cancel()

    assert (player.status, player.row("act").status) == (RunStatus.CANCELLED, ActivationStatus.CLOSED)


# -- random canvases --------------------------------------------------------------------------------------------------
@settings(deadline=None, max_examples=25)
@given(random_cases(), st.integers(0, 9999), st.integers(0, 9999), st.sampled_from(("ask", "retry", "fail")))
def test_a_run_with_unknown_outcomes_ends_or_waits_for_a_person(
    story: CanvasCase, seed: int, outcome_seed: int, policy: str
):
    canvas = with_policy(story.canvas, policy)
    rng = seeded_random(outcome_seed)
    lost = {node.id for node in possibly_unsafe_nodes(canvas) if rng.random() < 0.4}
    happened = {node for node in lost if rng.random() < 0.5}
    player = Player(canvas, lost_workers(*lost, otherwise=story.script), seeded_random(seed), check_determinism=True)

    while not player.play().status.is_over:
        assert player.status is RunStatus.WAITING
        player.answer(happened=happened)

    assert player.status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
    assert policy == "fail" or UNKNOWN_OUTCOME not in str(player.events)
    check_events(player)


def possibly_unsafe_nodes(canvas: Canvas) -> list[Node]:
    """Return the nodes that may be unsafe: those outside of overlapping items (canvas/graph/parallel_items.py)."""
    overlapping = {node.number for node in canvas.nodes if pipelined_levels(canvas, node)}
    return [
        node
        for node in canvas.nodes
        if node.component in ("StringTransform", "LLM") and overlapping.isdisjoint(canvas.containers_of(node.number))
    ]


def with_policy(canvas: Canvas, policy: Any) -> Canvas:
    return replace(canvas, nodes=tuple(replace(node, on_unknown=policy) for node in canvas.nodes))
