"""Iterations and loops: counters that begin anew, passes that end once, and failures that stay inside of their node."""

import pytest

from components.nodes.flow.loop import loop
from tests.deviations.told import Stage, Told, drawn, makes, repeats, rest_differs, says, sets, states, switches
from tests.fakes import FakeContext, run

# -- E6: conditions that cannot be read ------------------------------------------------------------------------------


@states("E6", case="loop_bad_condition_mode")
def test_an_unknown_input_mode_fails_the_item_node(told: Told):
    assert told.error == told.outputs("LoopItem:I")["_ERROR"] == told.finished("LoopItem:I")["error"] != ""
    assert told.story()[-1] == "-LoopItem:I"


@states("E6", case="loop_bad_logical")
def test_an_unknown_logical_operator_fails_the_item_node(told: Told):
    assert told.error == told.outputs("LoopItem:I")["_ERROR"] == told.finished("LoopItem:I")["error"] != ""
    assert told.story()[-1] == "-LoopItem:I"


@states("E6", case="loop_incomplete_condition")
def test_a_condition_without_an_operator_fails_the_item_node(told: Told):
    assert told.error == told.outputs("LoopItem:I")["_ERROR"] == told.finished("LoopItem:I")["error"] != ""
    assert told.story()[-1] == "-LoopItem:I"


@states("E6")
def test_a_number_is_ordered_against_a_number_in_a_text(stage: Stage):
    params = {
        "Loop:L": repeats(until=("Loop:L@n", "≥", "2"), n=0),
        "VariableAssigner:V": sets("Loop:L@n", "+=", 1),
        "Message:Out": says("{Loop:L@n}"),
    }

    told = stage.play(
        drawn("begin -> Loop:L -> Message:Out", params, inside={"Loop:L": "LoopItem:I -> VariableAssigner:V"})
    )

    assert told.answer == "2"


@states("E6")
def test_a_failed_condition_can_be_provided_for(stage: Stage):
    params = {
        "Loop:L": repeats(until=("Loop:L@n", "is", 1), n=0),
        "LoopItem:I": {"exception_method": "goto", "exception_goto": ["Message:Saved"]},
        "StringTransform:T": makes("t"),
        "Message:Saved": says("saved"),
    }

    told = stage.play(
        drawn("begin -> Loop:L; Message:Saved", params, inside={"Loop:L": "LoopItem:I -> StringTransform:T"})
    )

    assert (told.answer, told.error) == ("saved", "")


@states("E26")
def test_an_iteration_may_go_through_the_element_of_the_one_around_it(stage: Stage):
    params = {
        "Iteration:O": {
            "items_ref": "env.rows",
            "outputs": {"deep": {"ref": "StringTransform:T@result"}, "rows": {"ref": "Iteration:I@cells"}},
        },
        "Iteration:I": {"items_ref": "{item}", "outputs": {"cells": {"ref": "StringTransform:T@result"}}},
        "StringTransform:T": makes("<{item}>"),
        "Message:Out": says("{Iteration:O@rows}|{Iteration:O@deep}"),
    }
    inside = {"Iteration:O": "IterationItem:O -> Iteration:I", "Iteration:I": "IterationItem:I -> StringTransform:T"}
    env = {"rows": [["a", "b"], ["c"]]}

    told = stage.play(drawn("begin -> Iteration:O -> Message:Out", params, inside=inside, env=env))

    assert told.answer == '[["<a>", "<b>"], ["<c>"]]|'  # and nothing is collected from a child's child


# -- E7, Q7, Q11: counters -------------------------------------------------------------------------------------------


@states("E7", "Q7", case="iteration_in_loop")
def test_an_iteration_that_is_entered_again_begins_with_its_first_item_and_empty_lists(told: Told):
    assert told.answer == '["0a", "0b"];["1a", "1b"];'
    assert told.count("+StringTransform:B") == 4


@states("E7", "Q7", case="iteration_nested_with_follower")
def test_an_inner_iteration_collects_for_one_outer_item_at_a_time(told: Told):
    assert told.outputs("Iteration:O") == {"rows": ["row <a>|<b>", "row <c>|<d>"]}
    assert told.count("+StringTransform:B") == 4


@states("E7", "Q7", case="loop_nested")
def test_an_inner_loop_runs_as_often_in_each_outer_pass(told: Told):
    assert told.answer == "(0,1)(0,2)(1,1)(1,2)"
    assert rest_differs(told, str) is None


@states("E7", "Q7")
def test_a_loop_that_is_entered_again_counts_its_passes_anew(stage: Stage):
    params = {
        "Loop:O": repeats(until=("Loop:O@n", "=", 2), n=0),
        "Loop:N": repeats(until=("Loop:O@n", "=", 9), at_most=2),
        "VariableAssigner:N": sets("env.passes", "+=", 1),
        "VariableAssigner:O": sets("Loop:O@n", "+=", 1),
        "Message:Out": says("{env.passes}"),
    }
    inside = {"Loop:O": "LoopItem:O -> Loop:N -> VariableAssigner:O", "Loop:N": "LoopItem:N -> VariableAssigner:N"}

    told = stage.play(drawn("begin -> Loop:O -> Message:Out", params, inside=inside, env={"passes": 0}))

    assert told.answer == "4"


@states("E7", "Q11", case="fillup_in_loop")
def test_a_form_in_a_loop_pauses_once_in_each_pass(told: Told):
    assert told.answers == ["", "got_one;", "got_two;", "got_quit;bye after_3"]
    assert [run.waiting["tips"] for run in told.runs if run.waiting] == ["round 0", "round 1", "round 2"]


@states("E7", "Q11")
def test_a_pause_does_not_give_a_loop_more_passes(stage: Stage):
    params = {
        "Loop:L": repeats(until=("UserFillUp:U@v", "is", "quit"), at_most=2),
        "UserFillUp:U": {"inputs": {"v": {"type": "line"}}},
        "Message:In": says("{UserFillUp:U@v};"),
        "Message:Out": says("over"),
    }
    inside = {"Loop:L": "LoopItem:I -> UserFillUp:U -> Message:In"}
    answers = [{"inputs": {"v": {"value": value}}} for value in ("one", "two")]

    told = stage.play(drawn("begin -> Loop:L -> Message:Out", params, inside=inside), {"query": "q"}, *answers)

    assert told.answers == ["", "one;", "two;over"]


@states("E7", "Q11")
def test_an_iteration_goes_on_with_the_item_that_asked(stage: Stage):
    params = {
        "Iteration:L": {"items_ref": "env.items", "outputs": {"lines": {"ref": "StringTransform:T@result"}}},
        "UserFillUp:U": {"inputs": {"v": {"type": "line"}}, "tips": "{item}?"},
        "StringTransform:T": makes("{item}{UserFillUp:U@v}"),
        "Message:Out": says("{Iteration:L@lines}"),
    }
    inside = {"Iteration:L": "IterationItem:I -> UserFillUp:U -> StringTransform:T"}
    answers = [{"inputs": {"v": {"value": value}}} for value in ("1", "2")]

    told = stage.play(
        drawn("begin -> Iteration:L -> Message:Out", params, inside=inside, env={"items": ["a", "b"]}),
        {"query": "q"},
        *answers,
    )

    assert [run.waiting["tips"] for run in told.runs if run.waiting] == ["a?", "b?"]
    assert told.answer == '["a1", "b2"]'


# -- E18, Q13 and E20 ------------------------------------------------------------------------------------------------


@states("E18", "Q13", case="iteration_not_a_list_number")
def test_an_iteration_over_a_number_fails_as_a_node(told: Told):
    assert told.error == "env.arr must be an array, but its type is int"
    assert told.outputs("Iteration:L")["_ERROR"] == told.error


@states("E18", "Q13")
def test_an_iteration_over_nothing_starts_before_it_fails(stage: Stage):
    params = {
        "Iteration:L": {"items_ref": "env.none", "exception_method": "goto", "exception_goto": ["Message:Saved"]},
        "StringTransform:T": makes("{item}"),
        "Message:Saved": says("saved"),
    }

    told = stage.play(
        drawn(
            "begin -> Iteration:L; Message:Saved",
            params,
            inside={"Iteration:L": "IterationItem:I -> StringTransform:T"},
            env={"none": None},
        )
    )

    assert (told.answer, told.error, told.count("+Iteration:L")) == ("saved", "", 1)


@states("E20", case="loop_incomplete_variable")
def test_a_blank_row_of_loop_variables_is_skipped(told: Told):
    assert (told.answer, told.error) == ("end", "")


@states("E20")
@pytest.mark.parametrize("missing", ["type", "input_mode", "value"])
def test_a_row_that_has_a_name_and_lacks_the_rest_fails_the_loop(missing: str):
    row = {"variable": "n", "type": "number", "input_mode": "constant", "value": 1, missing: None}

    with pytest.raises(Exception, match="not complete"):
        run(loop, {"loop_variables": [row]}, FakeContext())


# -- Q8, Q9, Q10: the end of a pass ----------------------------------------------------------------------------------


@states("Q8")
def test_a_body_with_leaves_at_different_depths_runs_once_for_each_item(stage: Stage):
    params = {
        "Iteration:L": {"items_ref": "env.items", "outputs": {"lines": {"ref": "StringTransform:C@result"}}},
        "StringTransform:A": makes("{item}"),
        "StringTransform:B": makes("b"),
        "StringTransform:C": makes("{StringTransform:A@result}{StringTransform:B@result}"),
        "Message:Out": says("{Iteration:L@lines}"),
    }
    body = "IterationItem:I -> StringTransform:A, StringTransform:B; StringTransform:B -> StringTransform:C"

    told = stage.play(
        drawn("begin -> Iteration:L -> Message:Out", params, inside={"Iteration:L": body}, env={"items": ["x", "y"]})
    )

    assert told.answer == '["xb", "yb"]'
    assert told.count("+IterationItem:I") == 3


@states("Q9")
def test_an_inner_container_that_nothing_follows_ends_its_outer_pass(stage: Stage):
    params = {
        "Iteration:O": {"items_ref": "env.items"},
        "Iteration:N": {"items_ref": "IterationItem:O@item"},
        "Message:In": says("{item};"),
        "Message:Out": says("over"),
    }
    inside = {"Iteration:O": "IterationItem:O -> Iteration:N", "Iteration:N": "IterationItem:N -> Message:In"}

    told = stage.play(
        drawn("begin -> Iteration:O -> Message:Out", params, inside=inside, env={"items": [["a", "b"], ["c"]]})
    )

    assert told.answer == "a;b;c;over"
    assert told.count("-Iteration:N") == 2


@states("Q10")
def test_a_choice_that_leads_nowhere_ends_the_pass_and_not_the_run(stage: Stage):
    params = {
        "Iteration:L": {"items_ref": "env.items"},
        "Switch:S": switches("IterationItem:I@item", "=", "x", ["Message:In"], ["Message:Gone"]),
        "Message:In": says("{item};"),
        "Message:Out": says("over"),
    }

    told = stage.play(
        drawn(
            "begin -> Iteration:L -> Message:Out",
            params,
            inside={"Iteration:L": "IterationItem:I -> Switch:S -> Message:In"},
            env={"items": ["x", "y", "x"]},
        )
    )

    assert (told.answer, told.error) == ("x;x;over", "")


# -- exit_loop_finish ------------------------------------------------------------------------------------------------


@states("exit_loop_finish")
def test_a_loop_that_is_left_by_its_exit_is_finished_before_what_follows(stage: Stage):
    params = {
        "Loop:L": repeats(until=("Loop:L@n", "=", 9), n=0),
        "ExitLoop:X": {},
        "Message:Out": says("over"),
    }

    told = stage.play(drawn("begin -> Loop:L -> Message:Out", params, inside={"Loop:L": "LoopItem:I -> ExitLoop:X"}))

    assert told.story()[-5:] == ["-ExitLoop:X", "-Loop:L", "+Message:Out", "-Message:Out", "workflow_finished"]
    assert told.answer == "over"
