"""Which nodes run, when and how often: joins, references across branches, cycles, and forms beside other branches."""

import pytest

from canvas.state.run_state import MAX_ORDINAL, RunStatus
from tests.builders import canvas_of, routed_to, script_of
from tests.deviations.observed_run import (
    CaseResult,
    CaseRunner,
    covers_rows,
    dsl_of,
    message_params,
    switch_params,
    text_params,
)
from tests.player import Player

# -- Q1, Q2: joins of unequal paths ----------------------------------------------------------------------------------


@covers_rows("Q1", case="join_unequal_1_and_3_no_refs")
def test_a_join_runs_once_after_the_longest_of_its_paths(result: CaseResult):
    assert result.answer == "[Jq]"
    assert result.count("+StringTransform:J") == result.count("+Message:Out") == 1
    assert result.steps().index("-StringTransform:D") < result.steps().index("+StringTransform:J")


@covers_rows("Q1", case="join_unequal_aggregator")
def test_aggregator_waits_for_all_its_variables(result: CaseResult):
    assert result.answer == "<ac>"
    assert result.count("+VariableAggregator:J") == 1


@covers_rows("Q1", case="join_unequal_assigner")
def test_assigner_after_unequal_paths_appends_once(result: CaseResult):
    assert result.answer == '["b"];'
    assert result.runs[0].globals["env.log"] == ["b"]


@covers_rows("Q1", case="join_unequal_assigner_counts")
def test_assigner_after_unequal_paths_counts_once(result: CaseResult):
    assert result.answer == "n=1;"
    assert result.runs[0].globals["env.n"] == 1


@covers_rows("Q1", case="join_unequal_invoke")
def test_invoke_after_unequal_paths_sends_one_request_with_all_values(result: CaseResult):
    assert result.answer == "full;"
    assert result.observed.http_requests == [["GET", "/e/ac"]]


@covers_rows("Q1", case="join_unequal_switch")
def test_switch_after_unequal_paths_decides_once_with_all_values(result: CaseResult):
    assert result.answer == "yes;"
    assert "+Message:No" not in result.steps()


@covers_rows("Q2", case="join_unequal_message_two_turns")
def test_a_join_waits_in_a_second_turn_as_in_the_first(result: CaseResult):
    assert result.answers == ["b/first", "b/second"]
    assert result.count("+Message:Out") == 1


# -- Q3, E27: branches that were not taken ---------------------------------------------------------------------------


@covers_rows("E27", "Q3", case="switch_exclusive_branches_joined_by_refs")
def test_message_after_exclusive_branches_shows_the_other_branch_as_empty(result: CaseResult):
    assert result.answers == ["left|", "|right"]


@covers_rows("E27", "Q3", case="switch_exclusive_join_refs_over_turns")
def test_message_after_exclusive_branches_does_not_depend_on_earlier_turns(result: CaseResult):
    assert result.answers == ["left|", "|right", "left|"]


@covers_rows("E27", "Q3", case="fillup_then_exclusive_join_refs")
def test_message_after_exclusive_branches_is_the_same_after_a_form(result: CaseResult):
    assert result.answers == ["", "left|", "", "|right"]


@covers_rows("E27", "Q3", case="fillup_on_one_branch_only")
def test_model_that_references_a_skipped_form_runs(result: CaseResult):
    assert result.answers == ["", "with form", "without form"]
    assert result.requests[-1]["messages"][-1]["content"] == "x=[] q=two"


@covers_rows("E27", "Q3", case="loop_never_runs_message_refers_to_body")
def test_message_that_references_a_loop_body_that_never_ran_is_streamed(result: CaseResult):
    assert result.answer == "end_3_last=()"


@covers_rows("Q3", case="fillup_then_unequal_join")
def test_a_join_after_a_form_waits_and_runs_once(result: CaseResult):
    assert result.answers == ["", "J[b|a1c];"]
    assert result.count("+StringTransform:J") == result.count("+Message:Out") == 1
    assert result.finished_data("StringTransform:J")["inputs"]["LLM:C@content"] == "a1c"


@covers_rows("E27")
@pytest.mark.parametrize(("value", "answer"), [("1", "it is left"), ("2", "it is right")])
def test_message_uses_an_alternative_whose_nodes_have_run(case_runner: CaseRunner, value: str, answer: str):
    params = {
        "begin": {"inputs": {"a": {"type": "line"}}},
        "Switch:S": switch_params("begin@a", "=", "1", ["StringTransform:L"], ["StringTransform:R"]),
        "StringTransform:L": text_params("left"),
        "StringTransform:R": text_params("right"),
        "Message:Out": message_params("it is {StringTransform:L@result}", "it is {StringTransform:R@result}"),
    }
    edges = "begin -> Switch:S -> StringTransform:L, StringTransform:R -> Message:Out"

    result = case_runner.run(dsl_of(edges, params), {"inputs": {"a": {"value": value}}})

    assert result.answer == answer


# -- Q4: edges drawn more than once ----------------------------------------------------------------------------------


@covers_rows("Q4", case="parallel_full_mesh")
def test_nodes_with_several_predecessors_run_once(result: CaseResult):
    assert result.answer == "abc_abd"
    assert result.count("+StringTransform:C") == result.count("+StringTransform:D") == 1


@covers_rows("Q4", case="parallel_full_mesh_messages")
def test_messages_with_several_model_predecessors_are_streamed_once(result: CaseResult):
    assert result.answer == "C_rarb;D_rarb;"
    assert len(result.requests) == 2


@covers_rows("Q4")
def test_duplicate_edge_counts_as_one_edge(case_runner: CaseRunner):
    document = dsl_of(
        "begin -> Message:A, Message:B", {"Message:A": message_params("a"), "Message:B": message_params("b")}
    )
    document["components"]["begin"]["downstream"] = ["Message:A", "Message:B", "Message:A"]

    result = case_runner.run(document)

    assert result.answer == "ab"


# -- Q5, Q6: siblings ------------------------------------------------------------------------------------------------


@covers_rows("Q5")
@pytest.mark.parametrize("order", ["StringTransform:A, StringTransform:B", "StringTransform:B, StringTransform:A"])
def test_a_node_waits_for_a_sibling_that_it_refers_to(case_runner: CaseRunner, order: str):
    params = {
        "StringTransform:A": text_params("{StringTransform:B@result}!"),
        "StringTransform:B": text_params("b"),
        "Message:Out": message_params("{StringTransform:A@result}"),
    }

    result = case_runner.run(dsl_of(f"begin -> {order}; StringTransform:A -> Message:Out", params))

    assert result.answer == "b!"


@covers_rows("E27", "Q3", "Q5", case="variables_forward_reference")
def test_reference_to_a_later_node_is_empty_and_does_not_block(result: CaseResult):
    assert result.answer == "xlater"


@covers_rows("Q6")
def test_slow_sibling_does_not_delay_the_message_of_the_other():
    player = Player(canvas_of("begin -> quick, slow; quick -> say1; slow -> say2")).begin().report("begin")
    player.claim("slow")

    player.report("quick").report("say1")

    assert player.streamed_nodes == ["say1"]
    assert player.busy_nodes == ["slow"]


@covers_rows("Q6")
def test_order_of_streamed_messages_does_not_depend_on_node_speed():
    player = Player(canvas_of("begin -> slow, quick; slow -> say1; quick -> say2")).begin().report("begin")

    player.report("quick").report("say2").report("slow").report("say1")

    assert player.streamed_nodes == ["say1", "say2"]


# -- Q12: cycles -----------------------------------------------------------------------------------------------------


@covers_rows("Q12")
def test_cycle_repeats_and_fails_at_the_visit_limit():
    canvas = canvas_of("begin -> work -> pick -> work, end")

    player = Player(canvas, script_of(pick=routed_to("work"))).play()

    assert player.status is RunStatus.FAILED
    assert player.path.count("work") == MAX_ORDINAL == 1000


# -- pending_branch --------------------------------------------------------------------------------------------------


@covers_rows("pending_branch", case="fillup_beside_other_branch")
def test_parallel_branch_finishes_before_the_form_is_shown(result: CaseResult):
    assert result.answers == ["side hi", "x=1"]
    assert result.steps(0)[-2:] == ["-Message:Side", "user_inputs"]
    assert "+Message:Side" not in result.steps(1)
