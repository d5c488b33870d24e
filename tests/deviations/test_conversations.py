"""Several turns of one conversation: what a later turn sees of an earlier one, forms, and runs that are cancelled."""

from dataclasses import replace

from tests.deviations.told import (
    Stage,
    Told,
    breaks,
    drawn,
    makes,
    recorded,
    repeats,
    rest_differs,
    says,
    sets,
    states,
    switches,
)

FORM = {"inputs": {"name": {"type": "line"}}, "tips": "Who?"}


def answer(**values: str) -> dict[str, object]:
    return {"inputs": {name: {"value": value} for name, value in values.items()}}


# -- stale_error, Q14, Q15: what a failed turn leaves ----------------------------------------------------------------


@states("stale_error", "Q14", "T18", case="llm_error_second_turn_recovers")
def test_a_node_that_failed_in_one_turn_can_do_its_work_in_the_next(told: Told):
    assert told.runs[0].error == "**ERROR**: INVALID_REQUEST - invalid request: bad"
    assert (told.answer, told.error) == ("A:_[recovered]", "")
    assert told.outputs("LLM:A") == {"content": "recovered"}


@states("stale_error", case="error_node_default_empty")
def test_an_empty_default_stops_the_run_in_every_turn(told: Told):
    assert [bool(run.error) for run in told.runs] == [True, True]
    assert rest_differs(told, str) is None


@states("stale_error", case="error_node_no_handler")
def test_a_node_that_still_cannot_do_its_work_fails_again_by_itself(told: Told):
    assert [bool(run.error) for run in told.runs] == [True, True]
    assert [told.count("+StringTransform:T", run) for run in range(2)] == [1, 1]
    assert rest_differs(told, str) is None


@states("Q14", "T2")
def test_an_error_of_one_pass_is_gone_in_the_next(stage: Stage):
    params = {
        "Loop:L": repeats(until=("Loop:L@n", "=", 1), n=0),
        "StringTransform:T": breaks(exception_method="goto", exception_goto=["VariableAssigner:M"]),
        "Message:In": says("{StringTransform:T@result};"),
        "VariableAssigner:M": sets("env.broken", "set", "mended"),
        "Message:Mended": says("mended;"),
        "VariableAssigner:V": sets("Loop:L@n", "+=", 1),
    }
    body = "LoopItem:I -> StringTransform:T -> Message:In -> VariableAssigner:V; VariableAssigner:M -> Message:Mended"

    told = stage.play(drawn("begin -> Loop:L", params, inside={"Loop:L": body}, env={"broken": 5}))

    assert (told.answer, told.error) == ('mended;["mended"];', "")
    assert "_ERROR" not in told.outputs("StringTransform:T")


@states("Q15")
def test_what_ran_before_a_pause_is_empty_in_the_turn_after_it(stage: Stage):
    params = {
        "Switch:S": switches("sys.query", "=", "first", ["StringTransform:T"], ["Message:Out"]),
        "StringTransform:T": makes("of the first turn"),
        "UserFillUp:U": FORM,
        "Message:Out": says("[{StringTransform:T@result}]"),
    }
    edges = "begin -> Switch:S -> StringTransform:T, Message:Out; StringTransform:T -> UserFillUp:U -> Message:Out"

    told = stage.play(drawn(edges, params), {"query": "first"}, answer(name="Ann"), {"query": "second"})

    assert told.answers == ["", "[of the first turn]", "[]"]


# -- what stays, and what does not -----------------------------------------------------------------------------------


@states("append_in_place", case="conversation_env_accumulates")
def test_what_is_appended_to_a_variable_does_not_change_what_a_new_conversation_begins_with(told: Told):
    assert told.answers == [
        'count=1_log=["a"]',
        'count=2_log=["a", "b"]',
        'count=1_log=["c"]',
        'count=2_log=["c", "d"]',
        'count=1_log=["e"]',
    ]


@states("no_reset", case="reset_env_without_variable")
def test_a_new_conversation_begins_with_a_full_reset(told: Told):
    assert told.answers == ["a/me/keep/", "a/me/keep/", "b//keep/"]


# -- forms -----------------------------------------------------------------------------------------------------------


@states("third_turn", case="fillup_third_turn")
def test_the_turn_after_a_finished_form_begins_at_the_beginning(told: Told):
    assert told.story(2) == ["workflow_started", "+begin", "-begin", "user_inputs"]
    assert told.answers == ["", "Hello_Ada_q=hi", "", "Hello_Bob_q=again"]


@states("third_turn")
def test_a_form_is_resumed_whatever_its_id(stage: Stage):
    document = drawn("begin -> Form:1 -> Message:Out", {"Form:1": FORM, "Message:Out": says("Hi {Form:1@name}")})
    document["components"]["Form:1"]["obj"]["component_name"] = "UserFillUp"

    told = stage.play(document, {"query": "q"}, answer(name="Ann"))

    assert told.answers == ["", "Hi Ann"]


@states("empty_resume", case="fillup_resume_without_inputs")
def test_a_form_with_several_open_fields_is_asked_again(told: Told):
    assert told.runs[1].waiting == told.runs[0].waiting
    assert told.story(1) == ["user_inputs"]
    assert told.answer == ""


@states("empty_resume")
def test_a_plain_query_answers_a_form_with_a_single_open_field(stage: Stage):
    params = {"UserFillUp:U": FORM, "Message:Out": says("Hi {UserFillUp:U@name}")}

    told = stage.play(drawn("begin -> UserFillUp:U -> Message:Out", params), {"query": "q"}, {"query": "Ann"})

    assert told.answers == ["", "Hi Ann"]


# -- cancel_end ------------------------------------------------------------------------------------------------------


@states("cancel_end", case="cancel_between_nodes")
def test_a_run_that_is_cancelled_between_two_nodes_has_one_end_and_no_error(told: Told):
    assert told.error == ""
    assert told.story()[-1] == "workflow_finished"
    assert told.count("workflow_finished") == 1


@states("cancel_end")
def test_a_cancelled_run_ends_with_a_cancelled_end(stage: Stage):
    case = recorded("cancel_between_nodes")
    first, second = case.llm

    told = stage.carried_out(replace(case, llm=(first, {**second, "delay_ms": 20_000})))

    assert told.runs[0].events[-1]["event"] == "workflow_finished"
    assert told.runs[0].events[-1]["data"]["outputs"] == "Task has been canceled"
    assert told.answer == ""
    assert [role for role, _ in told.runs[0].history] == ["user"]
