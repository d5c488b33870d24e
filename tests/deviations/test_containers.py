"""Iterations and loops: counters that restart, passes that end once, and failures that only affect their node."""

import pytest

from components.nodes.flow.loop import loop
from tests.deviations.observed_run import (
    CaseResult,
    CaseRunner,
    assigner_params,
    covers_rows,
    dsl_of,
    first_remaining_difference,
    loop_params,
    message_params,
    switch_params,
    text_params,
)
from tests.fakes import FakeContext, run

# -- E6: conditions that cannot be read ------------------------------------------------------------------------------


@covers_rows("E6", case="loop_bad_condition_mode")
def test_an_unknown_input_mode_fails_the_item_node(result: CaseResult):
    assert result.error == result.outputs("LoopItem:I")["_ERROR"] == result.finished_data("LoopItem:I")["error"] != ""
    assert result.steps()[-1] == "-LoopItem:I"


@covers_rows("E6", case="loop_bad_logical")
def test_an_unknown_logical_operator_fails_the_item_node(result: CaseResult):
    assert result.error == result.outputs("LoopItem:I")["_ERROR"] == result.finished_data("LoopItem:I")["error"] != ""
    assert result.steps()[-1] == "-LoopItem:I"


@covers_rows("E6", case="loop_incomplete_condition")
def test_a_condition_without_an_operator_fails_the_item_node(result: CaseResult):
    assert result.error == result.outputs("LoopItem:I")["_ERROR"] == result.finished_data("LoopItem:I")["error"] != ""
    assert result.steps()[-1] == "-LoopItem:I"


@covers_rows("E6")
def test_loop_condition_compares_a_number_with_a_number_in_a_text(case_runner: CaseRunner):
    params = {
        "Loop:L": loop_params(until=("Loop:L@n", "≥", "2"), n=0),
        "VariableAssigner:V": assigner_params("Loop:L@n", "+=", 1),
        "Message:Out": message_params("{Loop:L@n}"),
    }

    result = case_runner.run(
        dsl_of("begin -> Loop:L -> Message:Out", params, inside={"Loop:L": "LoopItem:I -> VariableAssigner:V"})
    )

    assert result.answer == "2"


@covers_rows("E6")
def test_failed_loop_condition_follows_its_exception_goto(case_runner: CaseRunner):
    params = {
        "Loop:L": loop_params(until=("Loop:L@n", "is", 1), n=0),
        "LoopItem:I": {"exception_method": "goto", "exception_goto": ["Message:Saved"]},
        "StringTransform:T": text_params("t"),
        "Message:Saved": message_params("saved"),
    }

    result = case_runner.run(
        dsl_of("begin -> Loop:L; Message:Saved", params, inside={"Loop:L": "LoopItem:I -> StringTransform:T"})
    )

    assert (result.answer, result.error) == ("saved", "")


@covers_rows("E26")
def test_inner_iteration_may_iterate_over_the_outer_item(case_runner: CaseRunner):
    params = {
        "Iteration:O": {
            "items_ref": "env.rows",
            "outputs": {"deep": {"ref": "StringTransform:T@result"}, "rows": {"ref": "Iteration:I@cells"}},
        },
        "Iteration:I": {"items_ref": "{item}", "outputs": {"cells": {"ref": "StringTransform:T@result"}}},
        "StringTransform:T": text_params("<{item}>"),
        "Message:Out": message_params("{Iteration:O@rows}|{Iteration:O@deep}"),
    }
    inside = {"Iteration:O": "IterationItem:O -> Iteration:I", "Iteration:I": "IterationItem:I -> StringTransform:T"}
    env = {"rows": [["a", "b"], ["c"]]}

    result = case_runner.run(dsl_of("begin -> Iteration:O -> Message:Out", params, inside=inside, env=env))

    assert result.answer == '[["<a>", "<b>"], ["<c>"]]|'  # nothing is collected from a child's child


# -- E7, Q7, Q11: counters -------------------------------------------------------------------------------------------


@covers_rows("E7", "Q7", case="iteration_in_loop")
def test_reentered_iteration_starts_at_its_first_item_with_empty_lists(result: CaseResult):
    assert result.answer == '["0a", "0b"];["1a", "1b"];'
    assert result.count("+StringTransform:B") == 4


@covers_rows("E7", "Q7", case="iteration_nested_with_follower")
def test_an_inner_iteration_collects_for_one_outer_item_at_a_time(result: CaseResult):
    assert result.outputs("Iteration:O") == {"rows": ["row <a>|<b>", "row <c>|<d>"]}
    assert result.count("+StringTransform:B") == 4


@covers_rows("E7", "Q7", case="loop_nested")
def test_inner_loop_runs_the_same_number_of_passes_in_each_outer_pass(result: CaseResult):
    assert result.answer == "(0,1)(0,2)(1,1)(1,2)"
    assert first_remaining_difference(result, str) is None


@covers_rows("E7", "Q7")
def test_reentered_loop_counts_its_passes_from_zero(case_runner: CaseRunner):
    params = {
        "Loop:O": loop_params(until=("Loop:O@n", "=", 2), n=0),
        "Loop:N": loop_params(until=("Loop:O@n", "=", 9), at_most=2),
        "VariableAssigner:N": assigner_params("env.passes", "+=", 1),
        "VariableAssigner:O": assigner_params("Loop:O@n", "+=", 1),
        "Message:Out": message_params("{env.passes}"),
    }
    inside = {"Loop:O": "LoopItem:O -> Loop:N -> VariableAssigner:O", "Loop:N": "LoopItem:N -> VariableAssigner:N"}

    result = case_runner.run(dsl_of("begin -> Loop:O -> Message:Out", params, inside=inside, env={"passes": 0}))

    assert result.answer == "4"


@covers_rows("E7", "Q11", case="fillup_in_loop")
def test_a_form_in_a_loop_pauses_once_in_each_pass(result: CaseResult):
    assert result.answers == ["", "got_one;", "got_two;", "got_quit;bye after_3"]
    assert [run.waiting["tips"] for run in result.runs if run.waiting] == ["round 0", "round 1", "round 2"]


@covers_rows("E7", "Q11")
def test_form_in_a_loop_does_not_raise_its_maximum_passes(case_runner: CaseRunner):
    params = {
        "Loop:L": loop_params(until=("UserFillUp:U@v", "is", "quit"), at_most=2),
        "UserFillUp:U": {"inputs": {"v": {"type": "line"}}},
        "Message:In": message_params("{UserFillUp:U@v};"),
        "Message:Out": message_params("over"),
    }
    inside = {"Loop:L": "LoopItem:I -> UserFillUp:U -> Message:In"}
    answers = [{"inputs": {"v": {"value": value}}} for value in ("one", "two")]

    result = case_runner.run(dsl_of("begin -> Loop:L -> Message:Out", params, inside=inside), {"query": "q"}, *answers)

    assert result.answers == ["", "one;", "two;over"]


@covers_rows("E7", "Q11")
def test_iteration_continues_with_the_item_whose_form_was_answered(case_runner: CaseRunner):
    params = {
        "Iteration:L": {"items_ref": "env.items", "outputs": {"lines": {"ref": "StringTransform:T@result"}}},
        "UserFillUp:U": {"inputs": {"v": {"type": "line"}}, "tips": "{item}?"},
        "StringTransform:T": text_params("{item}{UserFillUp:U@v}"),
        "Message:Out": message_params("{Iteration:L@lines}"),
    }
    inside = {"Iteration:L": "IterationItem:I -> UserFillUp:U -> StringTransform:T"}
    answers = [{"inputs": {"v": {"value": value}}} for value in ("1", "2")]

    result = case_runner.run(
        dsl_of("begin -> Iteration:L -> Message:Out", params, inside=inside, env={"items": ["a", "b"]}),
        {"query": "q"},
        *answers,
    )

    assert [run.waiting["tips"] for run in result.runs if run.waiting] == ["a?", "b?"]
    assert result.answer == '["a1", "b2"]'


# -- E18, Q13 and E20 ------------------------------------------------------------------------------------------------


@covers_rows("E18", "Q13", case="iteration_not_a_list_number")
def test_an_iteration_over_a_number_fails_as_a_node(result: CaseResult):
    assert result.error == "env.arr must be an array, but its type is int"
    assert result.outputs("Iteration:L")["_ERROR"] == result.error


@covers_rows("E18", "Q13")
def test_iteration_over_null_starts_before_it_fails(case_runner: CaseRunner):
    params = {
        "Iteration:L": {"items_ref": "env.none", "exception_method": "goto", "exception_goto": ["Message:Saved"]},
        "StringTransform:T": text_params("{item}"),
        "Message:Saved": message_params("saved"),
    }

    result = case_runner.run(
        dsl_of(
            "begin -> Iteration:L; Message:Saved",
            params,
            inside={"Iteration:L": "IterationItem:I -> StringTransform:T"},
            env={"none": None},
        )
    )

    assert (result.answer, result.error, result.count("+Iteration:L")) == ("saved", "", 1)


@covers_rows("E20", case="loop_incomplete_variable")
def test_a_blank_row_of_loop_variables_is_skipped(result: CaseResult):
    assert (result.answer, result.error) == ("end", "")


@covers_rows("E20")
@pytest.mark.parametrize("missing", ["type", "input_mode", "value"])
def test_incomplete_row_of_loop_variables_fails_the_loop(missing: str):
    row = {"variable": "n", "type": "number", "input_mode": "constant", "value": 1, missing: None}

    with pytest.raises(Exception, match="not complete"):
        run(loop, {"loop_variables": [row]}, FakeContext())


# -- Q8, Q9, Q10: the end of a pass ----------------------------------------------------------------------------------


@covers_rows("Q8")
def test_a_body_with_leaves_at_different_depths_runs_once_for_each_item(case_runner: CaseRunner):
    params = {
        "Iteration:L": {"items_ref": "env.items", "outputs": {"lines": {"ref": "StringTransform:C@result"}}},
        "StringTransform:A": text_params("{item}"),
        "StringTransform:B": text_params("b"),
        "StringTransform:C": text_params("{StringTransform:A@result}{StringTransform:B@result}"),
        "Message:Out": message_params("{Iteration:L@lines}"),
    }
    body = "IterationItem:I -> StringTransform:A, StringTransform:B; StringTransform:B -> StringTransform:C"

    result = case_runner.run(
        dsl_of("begin -> Iteration:L -> Message:Out", params, inside={"Iteration:L": body}, env={"items": ["x", "y"]})
    )

    assert result.answer == '["xb", "yb"]'
    assert result.count("+IterationItem:I") == 3


@covers_rows("Q9")
def test_inner_container_without_successor_ends_the_outer_pass(case_runner: CaseRunner):
    params = {
        "Iteration:O": {"items_ref": "env.items"},
        "Iteration:N": {"items_ref": "IterationItem:O@item"},
        "Message:In": message_params("{item};"),
        "Message:Out": message_params("over"),
    }
    inside = {"Iteration:O": "IterationItem:O -> Iteration:N", "Iteration:N": "IterationItem:N -> Message:In"}

    result = case_runner.run(
        dsl_of("begin -> Iteration:O -> Message:Out", params, inside=inside, env={"items": [["a", "b"], ["c"]]})
    )

    assert result.answer == "a;b;c;over"
    assert result.count("-Iteration:N") == 2


@covers_rows("Q10")
def test_switch_without_target_node_ends_the_pass_but_not_the_run(case_runner: CaseRunner):
    params = {
        "Iteration:L": {"items_ref": "env.items"},
        "Switch:S": switch_params("IterationItem:I@item", "=", "x", ["Message:In"], ["Message:Gone"]),
        "Message:In": message_params("{item};"),
        "Message:Out": message_params("over"),
    }

    result = case_runner.run(
        dsl_of(
            "begin -> Iteration:L -> Message:Out",
            params,
            inside={"Iteration:L": "IterationItem:I -> Switch:S -> Message:In"},
            env={"items": ["x", "y", "x"]},
        )
    )

    assert (result.answer, result.error) == ("x;x;over", "")


# -- exit_loop_finish ------------------------------------------------------------------------------------------------


@covers_rows("exit_loop_finish")
def test_loop_left_by_exit_loop_finishes_before_its_successor_starts(case_runner: CaseRunner):
    params = {
        "Loop:L": loop_params(until=("Loop:L@n", "=", 9), n=0),
        "ExitLoop:X": {},
        "Message:Out": message_params("over"),
    }

    result = case_runner.run(
        dsl_of("begin -> Loop:L -> Message:Out", params, inside={"Loop:L": "LoopItem:I -> ExitLoop:X"})
    )

    assert result.steps()[-5:] == ["-ExitLoop:X", "-Loop:L", "+Message:Out", "-Message:Out", "workflow_finished"]
    assert result.answer == "over"
