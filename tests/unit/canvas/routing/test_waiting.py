"""Forms: a run shows them once nothing else is active, and continues with the answers (engine 4.9)."""

from collections.abc import Mapping
from typing import Any

import pytest

from canvas.outcome import Finished, Outcome, WaitingForInput
from canvas.routing.decide import show_forms_again
from canvas.state.run_state import ActivationStatus, RunStatus
from tests.builders import NodeAttempt, canvas_of, default_outcome, failed, items, rounds, script_of, seeded_random
from tests.listener import check_events
from tests.player import Player


def shown_forms(player: Player) -> Mapping[str, Any]:
    """Return the forms that were shown last."""
    return next(event.body for event in reversed(player.events) if event.name == "user_inputs")


def test_form_is_shown_and_its_node_started_event_follows_the_answer():
    player = Player(canvas_of("begin -> form -> end")).play()

    assert player.status is RunStatus.WAITING
    assert player.short_events == ["workflow_started", "+begin", "-begin", "user_inputs"]
    player.answer().play()

    assert player.short_events[4:] == ["+form", "-form", "+end", "-end", "workflow_finished"]
    check_events(player)


def test_form_is_shown_once_all_other_branches_are_done():
    player = Player(canvas_of("begin -> form, a; a -> b; form, b -> end")).begin().report("begin").report("form")
    assert player.status is RunStatus.RUNNING

    player.report("a").report("b")

    assert player.status is RunStatus.WAITING
    assert player.row("form").status is ActivationStatus.WAITING
    assert "end" not in player.path


def test_join_after_a_form_waits_for_the_answer():
    player = Player(canvas_of("begin -> form, a -> end")).play().answer().play()

    assert player.path == ["begin", "form", "a", "end"]


@pytest.mark.parametrize("seed", range(4))
def test_several_forms_are_shown_together_and_later_fields_override_earlier_ones(seed: int):
    fields = {"same": {"type": "line"}}
    script = script_of(
        forma=lambda at: Finished() if at.answered else WaitingForInput({**fields, "one": {}}, tips="A"),
        formb=lambda at: Finished() if at.answered else WaitingForInput({"same": {"type": "file"}}, tips="B"),
        formc=lambda at: Finished() if at.answered else WaitingForInput({"two": {}}),
    )
    player = Player(canvas_of("begin -> forma, formb, x; x -> formc"), script, seeded_random(seed)).play()

    assert shown_forms(player) == {
        "inputs": {"same": {"type": "file"}, "one": {}, "two": {}},
        "tips": "B",
        "forms": {
            "forma": {"inputs": {"same": {"type": "line"}, "one": {}}, "tips": "A"},
            "formb": {"inputs": {"same": {"type": "file"}}, "tips": "B"},
            "formc": {"inputs": {"two": {}}, "tips": ""},
        },
    }
    assert player.answer().busy_nodes == ["forma", "formb", "formc"]
    check_events(player.play())


def test_form_without_open_fields_finishes_without_being_shown():
    player = Player(canvas_of("begin -> form -> end"), script_of(form=Finished())).play()

    assert player.status is RunStatus.SUCCEEDED
    assert player.short_events[3:5] == ["+form", "-form"]
    check_events(player)


def test_form_after_a_form_is_shown_once_the_first_is_answered():
    player = Player(canvas_of("begin -> forma -> formb")).play()

    assert list(shown_forms(player)["forms"]) == ["forma"]
    assert list(shown_forms(player.answer().play())["forms"]) == ["formb"]


def test_form_in_a_loop_is_shown_in_each_pass():
    canvas = canvas_of("begin -> loop -> end", "loop: visit -> form -> a")
    player = Player(canvas, script_of(visit=rounds(3))).play_and_answer()

    assert player.short_events.count("user_inputs") == 3
    assert player.path == ["begin", "loop", *["visit", "form", "a"] * 3, "visit", "end"]
    check_events(player)


def test_form_in_a_loop_is_shown_once_nodes_inside_and_outside_the_loop_are_done():
    canvas = canvas_of("begin -> loop, a; a -> b", "loop: visit -> form, c")
    player = Player(canvas, script_of(visit=rounds(1))).begin()
    player.report("begin").report("loop").report("visit").report("form")

    player.report("c").report("a")
    assert player.status is RunStatus.RUNNING
    player.report("b")

    assert player.status is RunStatus.WAITING


def test_form_in_nested_containers_makes_every_enclosing_container_idle():
    canvas = canvas_of("begin -> each", "each: item -> loop", "loop: visit -> form")
    player = Player(canvas, script_of(each=items(2), visit=rounds(2))).play_and_answer()

    assert player.status is RunStatus.SUCCEEDED
    assert player.short_events.count("user_inputs") == 4


@pytest.mark.parametrize("seed", range(6))
def test_forms_in_parallel_items_are_shown_together(seed: int):
    canvas = canvas_of("begin -> each -> end", "each: item -> form -> a")
    player = Player(canvas, script_of(each=items(3, at_once=2)), seeded_random(seed)).play_and_answer()

    assert player.short_events.count("user_inputs") == 2  # two items, and the third when they have ended
    assert player.path[-1] == "end"
    check_events(player)


def test_a_waiting_run_can_be_cancelled():
    player = Player(canvas_of("begin -> loop", "loop: visit -> form")).play()

    player.cancel()

    assert player.status is RunStatus.CANCELLED
    assert {row.status for row in player.rows.values()} == {ActivationStatus.DONE, ActivationStatus.CLOSED}
    check_events(player)


def test_answered_form_of_a_lost_worker_is_retried_with_its_answer():
    def form(at: NodeAttempt) -> Outcome:
        return failed("lease lost", retryable=True) if at.answered and at.attempt == 2 else default_outcome(at)

    player = Player(canvas_of("begin -> form -> end"), script_of(form=form)).play_and_answer()

    assert player.status is RunStatus.SUCCEEDED
    assert player.row("form").attempt == 3
    assert player.short_events.count("+form") == 1


def test_unanswered_form_is_shown_again_and_the_run_stays_waiting():
    player = Player(canvas_of("begin -> form -> end")).play()

    decision = show_forms_again(player.canvas, player.load())

    assert [event.body for event in decision.events] == [shown_forms(player)]
    assert decision.run.status is RunStatus.WAITING
    assert decision.new_statuses == {}


def test_finished_streams_open_before_a_form_is_shown():
    canvas = canvas_of("begin -> form, a; form -> saya; a -> sayb")
    player = Player(canvas).play()

    assert player.short_events[-1] == "user_inputs"
    assert player.streamed_nodes == ["sayb"]
