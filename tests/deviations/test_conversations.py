"""Several turns of one conversation: state from earlier turns, forms, and cancelled runs."""

from dataclasses import replace

from tests.deviations.observed_run import (
    CaseResult,
    CaseRunner,
    assigner_params,
    covers_rows,
    dsl_of,
    failing_params,
    first_remaining_difference,
    load_recorded_case,
    loop_params,
    message_params,
    switch_params,
    text_params,
)

FORM = {"inputs": {"name": {"type": "line"}}, "tips": "Who?"}


def answer(**values: str) -> dict[str, object]:
    return {"inputs": {name: {"value": value} for name, value in values.items()}}


# -- stale_error, Q14, Q15: after a failed turn ----------------------------------------------------------------------


@covers_rows("stale_error", "Q14", "T18", case="llm_error_second_turn_recovers")
def test_node_that_failed_in_one_turn_succeeds_in_the_next(result: CaseResult):
    assert result.runs[0].error == "**ERROR**: INVALID_REQUEST - invalid request: bad"
    assert (result.answer, result.error) == ("A:_[recovered]", "")
    assert result.outputs("LLM:A") == {"content": "recovered"}


@covers_rows("stale_error", case="error_node_default_empty")
def test_an_empty_default_stops_the_run_in_every_turn(result: CaseResult):
    assert [bool(run.error) for run in result.runs] == [True, True]
    assert first_remaining_difference(result, str) is None


@covers_rows("stale_error", case="error_node_no_handler")
def test_node_without_handler_fails_again_in_the_next_turn(result: CaseResult):
    assert [bool(run.error) for run in result.runs] == [True, True]
    assert [result.count("+StringTransform:T", run) for run in range(2)] == [1, 1]
    assert first_remaining_difference(result, str) is None


@covers_rows("Q14", "T2")
def test_node_error_of_one_loop_pass_is_cleared_in_the_next(case_runner: CaseRunner):
    params = {
        "Loop:L": loop_params(until=("Loop:L@n", "=", 1), n=0),
        "StringTransform:T": failing_params(exception_method="goto", exception_goto=["VariableAssigner:M"]),
        "Message:In": message_params("{StringTransform:T@result};"),
        "VariableAssigner:M": assigner_params("env.broken", "set", "mended"),
        "Message:Mended": message_params("mended;"),
        "VariableAssigner:V": assigner_params("Loop:L@n", "+=", 1),
    }
    body = "LoopItem:I -> StringTransform:T -> Message:In -> VariableAssigner:V; VariableAssigner:M -> Message:Mended"

    result = case_runner.run(dsl_of("begin -> Loop:L", params, inside={"Loop:L": body}, env={"broken": 5}))

    assert (result.answer, result.error) == ('mended;["mended"];', "")
    assert "_ERROR" not in result.outputs("StringTransform:T")


@covers_rows("Q15")
def test_output_from_before_a_form_is_empty_in_the_next_turn(case_runner: CaseRunner):
    params = {
        "Switch:S": switch_params("sys.query", "=", "first", ["StringTransform:T"], ["Message:Out"]),
        "StringTransform:T": text_params("of the first turn"),
        "UserFillUp:U": FORM,
        "Message:Out": message_params("[{StringTransform:T@result}]"),
    }
    edges = "begin -> Switch:S -> StringTransform:T, Message:Out; StringTransform:T -> UserFillUp:U -> Message:Out"

    result = case_runner.run(dsl_of(edges, params), {"query": "first"}, answer(name="Ann"), {"query": "second"})

    assert result.answers == ["", "[of the first turn]", "[]"]


# -- state of a conversation -----------------------------------------------------------------------------------------


@covers_rows("append_in_place", case="conversation_env_accumulates")
def test_appending_to_a_variable_does_not_change_its_initial_value(result: CaseResult):
    assert result.answers == [
        'count=1_log=["a"]',
        'count=2_log=["a", "b"]',
        'count=1_log=["c"]',
        'count=2_log=["c", "d"]',
        'count=1_log=["e"]',
    ]


@covers_rows("no_reset", case="reset_env_without_variable")
def test_a_new_conversation_begins_with_a_full_reset(result: CaseResult):
    assert result.answers == ["a/me/keep/", "a/me/keep/", "b//keep/"]


# -- forms -----------------------------------------------------------------------------------------------------------


@covers_rows("third_turn", case="fillup_third_turn")
def test_turn_after_a_finished_form_starts_at_begin(result: CaseResult):
    assert result.steps(2) == ["workflow_started", "+begin", "-begin", "user_inputs"]
    assert result.answers == ["", "Hello_Ada_q=hi", "", "Hello_Bob_q=again"]


@covers_rows("third_turn")
def test_form_with_any_node_id_is_resumed(case_runner: CaseRunner):
    document = dsl_of(
        "begin -> Form:1 -> Message:Out", {"Form:1": FORM, "Message:Out": message_params("Hi {Form:1@name}")}
    )
    document["components"]["Form:1"]["obj"]["component_name"] = "UserFillUp"

    result = case_runner.run(document, {"query": "q"}, answer(name="Ann"))

    assert result.answers == ["", "Hi Ann"]


@covers_rows("empty_resume", case="fillup_resume_without_inputs")
def test_resume_without_inputs_shows_a_form_with_several_fields_again(result: CaseResult):
    assert result.runs[1].waiting == result.runs[0].waiting
    assert result.steps(1) == ["user_inputs"]
    assert result.answer == ""


@covers_rows("empty_resume")
def test_a_plain_query_answers_a_form_with_a_single_open_field(case_runner: CaseRunner):
    params = {"UserFillUp:U": FORM, "Message:Out": message_params("Hi {UserFillUp:U@name}")}

    result = case_runner.run(dsl_of("begin -> UserFillUp:U -> Message:Out", params), {"query": "q"}, {"query": "Ann"})

    assert result.answers == ["", "Hi Ann"]


# -- cancel_end ------------------------------------------------------------------------------------------------------


@covers_rows("cancel_end", case="cancel_between_nodes")
def test_run_cancelled_between_two_nodes_finishes_once_without_error(result: CaseResult):
    assert result.error == ""
    assert result.steps()[-1] == "workflow_finished"
    assert result.count("workflow_finished") == 1


@covers_rows("cancel_end")
def test_cancelled_run_reports_the_cancel_in_workflow_finished(case_runner: CaseRunner):
    case = load_recorded_case("cancel_between_nodes")
    first, second = case.llm

    result = case_runner.run_case(replace(case, llm=(first, {**second, "delay_ms": 20_000})))

    assert result.runs[0].events[-1]["event"] == "workflow_finished"
    assert result.runs[0].events[-1]["data"]["outputs"] == "Task has been canceled"
    assert result.answer == ""
    assert [role for role, _ in result.runs[0].history] == ["user"]
