"""Forms: a run asks when nothing else moves, and the same run goes on with the answers (engine 4.9)."""

from collections.abc import Mapping
from typing import Any

import pytest

from canvas.outcome import Finished, Outcome, WaitingForInput
from canvas.routing.decide import show_forms_again
from canvas.state.run_state import ActivationStatus, RunStatus
from tests.builders import At, canvas_of, failed, items, rounds, script_of, seeded, usual
from tests.listener import check_events
from tests.player import Player


def asked(player: Player) -> Mapping[str, Any]:
    """What the last question was."""
    return next(event.body for event in reversed(player.events) if event.name == "user_inputs")


def test_a_form_is_asked_and_its_start_is_shown_with_the_answer():
    player = Player(canvas_of("begin -> form -> end")).play()

    assert player.status is RunStatus.WAITING
    assert player.story == ["workflow_started", "+begin", "-begin", "user_inputs"]
    player.answer().play()

    assert player.story[4:] == ["+form", "-form", "+end", "-end", "workflow_finished"]
    check_events(player)


def test_other_branches_go_on_and_the_form_is_asked_when_nothing_else_moves():
    player = Player(canvas_of("begin -> form, a; a -> b; form, b -> end")).begin().report("begin").report("form")
    assert player.status is RunStatus.RUNNING

    player.report("a").report("b")

    assert player.status is RunStatus.WAITING
    assert player.row("form").status is ActivationStatus.WAITING
    assert "end" not in player.path


def test_a_join_behind_a_form_waits_for_the_answer():
    player = Player(canvas_of("begin -> form, a -> end")).play().answer().play()

    assert player.path == ["begin", "form", "a", "end"]


@pytest.mark.parametrize("seed", range(4))
def test_several_forms_are_asked_together_and_later_ones_win(seed: int):
    fields = {"same": {"type": "line"}}
    script = script_of(
        forma=lambda at: Finished() if at.answered else WaitingForInput({**fields, "one": {}}, tips="A"),
        formb=lambda at: Finished() if at.answered else WaitingForInput({"same": {"type": "file"}}, tips="B"),
        formc=lambda at: Finished() if at.answered else WaitingForInput({"two": {}}),
    )
    player = Player(canvas_of("begin -> forma, formb, x; x -> formc"), script, seeded(seed)).play()

    assert asked(player) == {
        "inputs": {"same": {"type": "file"}, "one": {}, "two": {}},
        "tips": "B",
        "forms": {
            "forma": {"inputs": {"same": {"type": "line"}, "one": {}}, "tips": "A"},
            "formb": {"inputs": {"same": {"type": "file"}}, "tips": "B"},
            "formc": {"inputs": {"two": {}}, "tips": ""},
        },
    }
    assert player.answer().live == ["forma", "formb", "formc"]
    check_events(player.play())


def test_a_form_without_open_fields_goes_on_without_asking():
    player = Player(canvas_of("begin -> form -> end"), script_of(form=Finished())).play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.story[3:5] == ["+form", "-form"]
    check_events(player)


def test_a_form_behind_a_form_is_asked_afterwards():
    player = Player(canvas_of("begin -> forma -> formb")).play()

    assert list(asked(player)["forms"]) == ["forma"]
    assert list(asked(player.answer().play())["forms"]) == ["formb"]


def test_a_form_in_a_loop_is_asked_in_each_pass():
    canvas = canvas_of("begin -> loop -> end", "loop: visit -> form -> a")
    player = Player(canvas, script_of(visit=rounds(3))).play_out()

    assert player.story.count("user_inputs") == 3
    assert player.path == ["begin", "loop", *["visit", "form", "a"] * 3, "visit", "end"]
    check_events(player)


def test_a_form_in_a_loop_waits_for_what_moves_outside_and_beside_it():
    canvas = canvas_of("begin -> loop, a; a -> b", "loop: visit -> form, c")
    player = Player(canvas, script_of(visit=rounds(1))).begin()
    player.report("begin").report("loop").report("visit").report("form")

    player.report("c").report("a")
    assert player.status is RunStatus.RUNNING
    player.report("b")

    assert player.status is RunStatus.WAITING


def test_a_form_deep_inside_stills_every_container_around_it():
    canvas = canvas_of("begin -> each", "each: item -> loop", "loop: visit -> form")
    player = Player(canvas, script_of(each=items(2), visit=rounds(2))).play_out()

    assert player.status is RunStatus.SUCCEEDED
    assert player.story.count("user_inputs") == 4


@pytest.mark.parametrize("seed", range(6))
def test_forms_in_side_by_side_items_are_asked_together(seed: int):
    canvas = canvas_of("begin -> each -> end", "each: item -> form -> a")
    player = Player(canvas, script_of(each=items(3, at_once=2)), seeded(seed)).play_out()

    assert player.story.count("user_inputs") == 2  # two items, and the third when they have ended
    assert player.path[-1] == "end"
    check_events(player)


def test_a_waiting_run_can_be_cancelled():
    player = Player(canvas_of("begin -> loop", "loop: visit -> form")).play()

    player.cancel()

    assert player.status is RunStatus.CANCELLED
    assert {row.status for row in player.rows.values()} == {ActivationStatus.DONE, ActivationStatus.CLOSED}
    check_events(player)


def test_an_answered_form_whose_worker_dies_is_tried_again_with_its_answer():
    def form(at: At) -> Outcome:
        return failed("lease lost", retryable=True) if at.answered and at.attempt == 2 else usual(at)

    player = Player(canvas_of("begin -> form -> end"), script_of(form=form)).play_out()

    assert player.status is RunStatus.SUCCEEDED
    assert player.row("form").attempt == 3
    assert player.story.count("+form") == 1


def test_an_unanswered_question_is_shown_again_and_the_run_goes_on_waiting():
    player = Player(canvas_of("begin -> form -> end")).play()

    decision = show_forms_again(player.canvas, player.load())

    assert [event.body for event in decision.events] == [asked(player)]
    assert decision.run.status is RunStatus.WAITING
    assert decision.new_statuses == {}


def test_finished_streams_open_before_a_form_is_shown():
    canvas = canvas_of("begin -> form, a; form -> saya; a -> sayb")
    player = Player(canvas).play()

    assert player.story[-1] == "user_inputs"
    assert player.spoken == ["sayb"]
