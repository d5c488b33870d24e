"""Answer: a node that streams the texts not streamed yet, and then waits for the next query (components 3.19)."""

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
from tests.builders import RUN_ID, NodeAttempt, document_of, failed, routed_to, script_of, seeded_random
from tests.listener import check_events
from tests.player import Player

WITH_TEXT = WaitingForInput(inputs={}, outputs={"has_written": True})
WITHOUT_TEXT = WaitingForInput(inputs={})


def canvas_of(*parts: str, **params: Any) -> Canvas:
    """Return a canvas on which `talk` is an Answer."""
    document = document_of(*parts, **params)
    talk = replace(document.entries["talk"], component="Answer")
    return compile_canvas(replace(document, entries={**document.entries, "talk": talk}))


def answer_in_a_cycle(at: NodeAttempt) -> Outcome:
    """Act as an Answer in a cycle: without text at its first visit, with text at later ones."""
    if at.answered:
        return Finished()
    return WITH_TEXT if at.visit else WITHOUT_TEXT


# -- waiting and streaming -------------------------------------------------------------------------------------------
def test_answer_without_text_is_shown_as_a_form_without_fields():
    player = Player(canvas_of("begin -> talk -> end"), script_of(talk=answer_in_a_cycle)).play()

    assert player.status is RunStatus.WAITING
    assert player.short_events == ["workflow_started", "+begin", "-begin", "user_inputs"]
    assert player.events[-1].body == {"inputs": {}, "tips": "", "forms": {"talk": {"inputs": {}, "tips": ""}}}
    player.answer().play()

    assert player.short_events[4:] == ["+talk", "-talk", "+end", "-end", "workflow_finished"]
    check_events(player)


def test_text_of_an_answer_is_streamed_before_the_run_waits_and_it_starts_once():
    script = script_of(talk=lambda at: Finished() if at.answered else WITH_TEXT)
    player = Player(canvas_of("begin -> a -> talk -> end"), script).play()

    assert player.short_events[-3:] == ["+talk", "!talk", "user_inputs"]
    assert player.row("talk").status is ActivationStatus.WAITING
    player.answer().play()

    assert player.short_events[-5:] == ["user_inputs", "-talk", "+end", "-end", "workflow_finished"]
    assert player.streamed_nodes == ["talk"]
    check_events(player)


def test_cycle_through_an_answer_streams_one_text_for_each_query():
    canvas = canvas_of("begin -> talk -> think -> talk")
    player = Player(canvas, script_of(talk=answer_in_a_cycle)).play()

    for _ in range(3):
        player.answer().play()

    assert player.status is RunStatus.WAITING
    assert player.path == ["begin", "talk", "think", "talk", "think", "talk", "think", "talk"]
    assert player.streamed_nodes == ["talk"] * 3
    assert player.short_events[-6:] == ["-talk", "+think", "-think", "+talk", "!talk", "user_inputs"]


@pytest.mark.parametrize("seed", range(6))
def test_streams_of_messages_and_answers_never_interleave(seed: int):
    canvas = canvas_of("begin -> a, b; a -> talk; b -> saya -> c -> sayb")
    script = script_of(talk=lambda at: Finished() if at.answered else WITH_TEXT)
    player = Player(canvas, script, seeded_random(seed), check_determinism=True).play_and_answer()

    assert player.streamed_nodes == ["talk", "saya", "sayb"]
    check_events(player)


def test_parallel_branch_continues_while_an_answer_waits():
    canvas = canvas_of("begin -> talk, a; a -> b; talk, b -> end")
    player = Player(canvas, script_of(talk=lambda at: Finished() if at.answered else WITH_TEXT)).play()

    assert player.reported_nodes == ["begin", "talk", "a", "b"]
    assert player.answer().play().path[-1] == "end"
    check_events(player)


def test_unanswered_answer_waits_and_streams_nothing_more():
    outcomes = iter([WITH_TEXT, WITHOUT_TEXT, Finished()])
    player = Player(canvas_of("begin -> talk -> end"), script_of(talk=lambda at: next(outcomes))).play()

    player.answer().play()
    assert player.status is RunStatus.WAITING
    player.answer().play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.short_events.count("user_inputs") == 2
    assert player.streamed_nodes == ["talk"]
    check_events(player)


def test_router_can_exit_a_cycle_through_an_answer():
    canvas = canvas_of("begin -> talk -> pick -> talk, end")
    script = script_of(talk=answer_in_a_cycle, pick=[routed_to("talk"), routed_to("end")])
    player = Player(canvas, script).play_and_answer()

    assert player.path == ["begin", "talk", "pick", "talk", "pick", "end"]
    check_events(player)


# -- stopping --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("outcome", [WITH_TEXT, WITHOUT_TEXT])
def test_a_run_that_waits_for_a_query_can_be_cancelled(outcome: WaitingForInput):
    player = Player(canvas_of("begin -> talk -> end"), script_of(talk=outcome)).play()

    player.cancel()

    assert player.status is RunStatus.CANCELLED
    assert player.row("talk").status is ActivationStatus.CLOSED
    check_events(player)


def test_answer_cancelled_before_its_report_emits_no_event():
    player = Player(canvas_of("begin -> talk"), script_of(talk=WITH_TEXT)).begin().report("begin")
    player.claim("talk")
    player.cancel().report("talk")

    assert player.status is RunStatus.CANCELLED
    assert player.short_events == ["workflow_started", "+begin", "-begin", "workflow_finished"]


def test_text_of_an_answer_is_streamed_although_a_later_node_fails():
    canvas = canvas_of("begin -> talk, slow; slow -> broken")
    script = script_of(talk=WITH_TEXT, broken=failed())
    player = Player(canvas, script).begin().report("begin").report("talk").report("slow").report("broken")

    assert player.status is RunStatus.FAILED
    assert player.streamed_nodes == ["talk"]
    assert "-talk" not in player.short_events
    check_events(player)


def test_answer_of_a_lost_worker_is_streamed_once():
    outcomes = iter([failed("lease lost", retryable=True), WITH_TEXT, Finished()])
    player = Player(canvas_of("begin -> talk -> end"), script_of(talk=lambda at: next(outcomes))).play_and_answer()

    assert player.streamed_nodes == ["talk"]
    assert player.short_events.count("+talk") == 1
    check_events(player)


# -- stored and loaded -----------------------------------------------------------------------------------------------
def test_stored_form_without_a_start_flag_can_be_loaded():
    player = Player(canvas_of("begin -> talk"), script_of(talk=WITHOUT_TEXT)).play()
    stored = json.loads(player.run_json)
    without_start_flag = {**stored, "forms": {activation: form[:5] for activation, form in stored["forms"].items()}}

    (form,) = fill_run(RunState(RUN_ID, RunStatus.WAITING), without_start_flag).forms.values()

    assert not form.has_started
    assert run_to_json(player.load())["forms"] == stored["forms"]


def entry(component: str, *downstream: str, **params: Any) -> dict[str, Any]:
    return {"obj": {"component_name": component, "params": params}, "downstream": list(downstream), "upstream": []}


def answer_texts(**components: Any) -> Any:
    document = parsing.parse({"components": {"begin": entry("Begin", "answer:0"), **components}})
    assert check.check(document)[0] == []
    return document.entries["answer:0"].params["says"]


def test_answer_contains_the_texts_of_the_nodes_before_it():
    texts = answer_texts(
        **{
            "answer:0": entry("Answer", "llm:0", "sql:0", "form:0"),
            "llm:0": entry("Generate", "answer:0"),
            "sql:0": entry("ExeSQL", "answer:0"),
            "form:0": entry("UserFillUp", "answer:0"),
        }
    )

    assert texts == [
        {"text": "{llm:0@content}", "said": "{llm:0@_said}"},
        {"text": "{sql:0@formalized_content}", "said": "{sql:0@_said}"},
    ]


def test_answer_omits_texts_that_a_message_streams():
    texts = answer_texts(
        **{
            "answer:0": entry("Answer", "llm:0", "llm:1"),
            "llm:0": entry("LLM", "message:0", "answer:0"),
            "llm:1": entry("LLM", "message:1", "answer:0"),
            "message:0": entry("Message", "answer:0", content=["{llm:0@content}"]),
            "message:1": entry("Message", "answer:0", content=["Thanks."]),
        }
    )

    assert [row["text"] for row in texts] == ["{llm:1@content}"]


def test_model_read_only_by_an_answer_is_called():
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
