"""Answer: a node that says what is left to say, and then waits for the next turn (components 3.19)."""

import json
from dataclasses import replace
from typing import Any

import pytest

from canvas.document import parsing
from canvas.graph.canvas import Canvas, compile_canvas
from canvas.outcome import Finished, Outcome, WaitingForInput
from canvas.state.checkpoint import fill_run, run_to_json
from canvas.state.run_state import ActivationStatus, RunState, RunStatus
from canvas.validation import check
from tests.builders import RUN_ID, At, chose, document_of, failed, script_of, seeded
from tests.listener import check_events
from tests.player import Player

SAID = WaitingForInput(inputs={}, outputs={"spoke": True})
SILENT = WaitingForInput(inputs={})


def canvas_of(*parts: str, **params: Any) -> Canvas:
    """A canvas on which `talk` is an Answer."""
    document = document_of(*parts, **params)
    talk = replace(document.entries["talk"], component="Answer")
    return compile_canvas(replace(document, entries={**document.entries, "talk": talk}))


def talking(at: At) -> Outcome:
    """An Answer in a circle: first it only waits, then it has something to say."""
    if at.answered:
        return Finished()
    return SAID if at.visit else SILENT


# -- waiting and speaking --------------------------------------------------------------------------------------------
def test_an_answer_with_nothing_to_say_is_a_form_without_fields():
    player = Player(canvas_of("begin -> talk -> end"), script_of(talk=talking)).play()

    assert player.status is RunStatus.WAITING
    assert player.story == ["workflow_started", "+begin", "-begin", "user_inputs"]
    assert player.events[-1].body == {"inputs": {}, "tips": "", "forms": {"talk": {"inputs": {}, "tips": ""}}}
    player.answer().play()

    assert player.story[4:] == ["+talk", "-talk", "+end", "-end", "workflow_finished"]
    check_events(player)


def test_text_of_an_answer_is_streamed_before_the_run_waits_and_it_starts_once():
    script = script_of(talk=lambda at: Finished() if at.answered else SAID)
    player = Player(canvas_of("begin -> a -> talk -> end"), script).play()

    assert player.story[-3:] == ["+talk", "!talk", "user_inputs"]
    assert player.row("talk").status is ActivationStatus.WAITING
    player.answer().play()

    assert player.story[-5:] == ["user_inputs", "-talk", "+end", "-end", "workflow_finished"]
    assert player.spoken == ["talk"]
    check_events(player)


def test_a_circle_through_an_answer_is_a_conversation():
    canvas = canvas_of("begin -> talk -> think -> talk")
    player = Player(canvas, script_of(talk=talking)).play()

    for _ in range(3):
        player.answer().play()

    assert player.status is RunStatus.WAITING
    assert player.path == ["begin", "talk", "think", "talk", "think", "talk", "think", "talk"]
    assert player.spoken == ["talk"] * 3
    assert player.story[-6:] == ["-talk", "+think", "-think", "+talk", "!talk", "user_inputs"]


@pytest.mark.parametrize("seed", range(6))
def test_streams_of_messages_and_answers_never_interleave(seed: int):
    canvas = canvas_of("begin -> a, b; a -> talk; b -> saya -> c -> sayb")
    script = script_of(talk=lambda at: Finished() if at.answered else SAID)
    player = Player(canvas, script, seeded(seed), watched=True).play_out()

    assert player.spoken == ["talk", "saya", "sayb"]
    check_events(player)


def test_a_branch_beside_it_goes_on_while_it_waits():
    canvas = canvas_of("begin -> talk, a; a -> b; talk, b -> end")
    player = Player(canvas, script_of(talk=lambda at: Finished() if at.answered else SAID)).play()

    assert player.ran == ["begin", "talk", "a", "b"]
    assert player.answer().play().path[-1] == "end"
    check_events(player)


def test_unanswered_answer_waits_and_streams_nothing_more():
    outcomes = iter([SAID, SILENT, Finished()])
    player = Player(canvas_of("begin -> talk -> end"), script_of(talk=lambda at: next(outcomes))).play()

    player.answer().play()
    assert player.status is RunStatus.WAITING
    player.answer().play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.story.count("user_inputs") == 2
    assert player.spoken == ["talk"]
    check_events(player)


def test_a_router_may_leave_the_circle():
    canvas = canvas_of("begin -> talk -> pick -> talk, end")
    script = script_of(talk=talking, pick=[chose("talk"), chose("end")])
    player = Player(canvas, script).play_out()

    assert player.path == ["begin", "talk", "pick", "talk", "pick", "end"]
    check_events(player)


# -- stopping --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("outcome", [SAID, SILENT])
def test_a_run_that_waits_for_a_query_can_be_cancelled(outcome: WaitingForInput):
    player = Player(canvas_of("begin -> talk -> end"), script_of(talk=outcome)).play()

    player.cancel()

    assert player.status is RunStatus.CANCELLED
    assert player.row("talk").status is ActivationStatus.CLOSED
    check_events(player)


def test_answer_cancelled_before_its_report_emits_no_event():
    player = Player(canvas_of("begin -> talk"), script_of(talk=SAID)).begin().report("begin")
    player.claim("talk")
    player.cancel().report("talk")

    assert player.status is RunStatus.CANCELLED
    assert player.story == ["workflow_started", "+begin", "-begin", "workflow_finished"]


def test_text_of_an_answer_is_streamed_although_a_later_node_fails():
    canvas = canvas_of("begin -> talk, slow; slow -> broken")
    script = script_of(talk=SAID, broken=failed())
    player = Player(canvas, script).begin().report("begin").report("talk").report("slow").report("broken")

    assert player.status is RunStatus.FAILED
    assert player.spoken == ["talk"]
    assert "-talk" not in player.story
    check_events(player)


def test_answer_of_a_lost_worker_is_streamed_once():
    outcomes = iter([failed("lease lost", retryable=True), SAID, Finished()])
    player = Player(canvas_of("begin -> talk -> end"), script_of(talk=lambda at: next(outcomes))).play_out()

    assert player.spoken == ["talk"]
    assert player.story.count("+talk") == 1
    check_events(player)


# -- stored and loaded -----------------------------------------------------------------------------------------------
def test_runs_that_wait_since_before_forms_kept_their_start_can_be_read():
    player = Player(canvas_of("begin -> talk"), script_of(talk=SILENT)).play()
    stored = json.loads(player.run_json)
    before = {**stored, "forms": {activation: form[:5] for activation, form in stored["forms"].items()}}

    (form,) = fill_run(RunState(RUN_ID, RunStatus.WAITING), before).forms.values()

    assert not form.has_started
    assert run_to_json(player.load())["forms"] == stored["forms"]


def entry(component: str, *downstream: str, **params: Any) -> dict[str, Any]:
    return {"obj": {"component_name": component, "params": params}, "downstream": list(downstream), "upstream": []}


def says_of(**components: Any) -> Any:
    document = parsing.parse({"components": {"begin": entry("Begin", "answer:0"), **components}})
    assert check.check(document)[0] == []
    return document.entries["answer:0"].params["says"]


def test_an_answer_says_the_texts_of_the_nodes_before_it():
    found = says_of(
        **{
            "answer:0": entry("Answer", "llm:0", "sql:0", "form:0"),
            "llm:0": entry("Generate", "answer:0"),
            "sql:0": entry("ExeSQL", "answer:0"),
            "form:0": entry("UserFillUp", "answer:0"),
        }
    )

    assert found == [
        {"text": "{llm:0@content}", "said": "{llm:0@_said}"},
        {"text": "{sql:0@formalized_content}", "said": "{sql:0@_said}"},
    ]


def test_an_answer_leaves_to_messages_what_they_say():
    found = says_of(
        **{
            "answer:0": entry("Answer", "llm:0", "llm:1"),
            "llm:0": entry("LLM", "message:0", "answer:0"),
            "llm:1": entry("LLM", "message:1", "answer:0"),
            "message:0": entry("Message", "answer:0", content=["{llm:0@content}"]),
            "message:1": entry("Message", "answer:0", content=["Thanks."]),
        }
    )

    assert [row["text"] for row in found] == ["{llm:1@content}"]


def test_a_model_that_only_an_answer_listens_to_is_called():
    document = parsing.parse(
        {
            "components": {
                "begin": entry("Begin", "llm:0"),
                "llm:0": entry("LLM", "message:0", "answer:0"),
                "message:0": entry("Message", content=["Thanks."]),
                "answer:0": entry("Answer"),
            }
        }
    )

    assert not compile_canvas(document).uncalled_models
