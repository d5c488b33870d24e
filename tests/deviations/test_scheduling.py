"""Which nodes run, when and how often: joins, references across branches, circles, and forms beside other branches."""

import pytest

from canvas.state.run_state import MAX_ORDINAL, RunStatus
from tests.builders import canvas_of, chose, script_of
from tests.deviations.told import Stage, Told, drawn, makes, says, states, switches
from tests.player import Player

# -- Q1, Q2: joins of unequal paths ----------------------------------------------------------------------------------


@states("Q1", case="join_unequal_1_and_3_no_refs")
def test_a_join_runs_once_after_the_longest_of_its_paths(told: Told):
    assert told.answer == "[Jq]"
    assert told.count("+StringTransform:J") == told.count("+Message:Out") == 1
    assert told.story().index("-StringTransform:D") < told.story().index("+StringTransform:J")


@states("Q1", case="join_unequal_aggregator")
def test_an_aggregator_waits_for_all_that_it_may_choose_from(told: Told):
    assert told.answer == "<ac>"
    assert told.count("+VariableAggregator:J") == 1


@states("Q1", case="join_unequal_assigner")
def test_an_assigner_appends_once(told: Told):
    assert told.answer == '["b"];'
    assert told.runs[0].globals["env.log"] == ["b"]


@states("Q1", case="join_unequal_assigner_counts")
def test_an_assigner_counts_once(told: Told):
    assert told.answer == "n=1;"
    assert told.runs[0].globals["env.n"] == 1


@states("Q1", case="join_unequal_invoke")
def test_a_request_goes_out_once_with_all_its_values(told: Told):
    assert told.answer == "full;"
    assert told.played.http_requests == [["GET", "/e/ac"]]


@states("Q1", case="join_unequal_switch")
def test_a_switch_chooses_once_by_what_it_waited_for(told: Told):
    assert told.answer == "yes;"
    assert "+Message:No" not in told.story()


@states("Q2", case="join_unequal_message_two_turns")
def test_a_join_waits_in_a_second_turn_as_in_the_first(told: Told):
    assert told.answers == ["b/first", "b/second"]
    assert told.count("+Message:Out") == 1


# -- Q3, E27: branches that were not taken ---------------------------------------------------------------------------


@states("E27", "Q3", case="switch_exclusive_branches_joined_by_refs")
def test_a_message_after_either_branch_is_said_with_the_other_one_empty(told: Told):
    assert told.answers == ["left|", "|right"]


@states("E27", "Q3", case="switch_exclusive_join_refs_over_turns")
def test_what_is_said_does_not_depend_on_earlier_turns(told: Told):
    assert told.answers == ["left|", "|right", "left|"]


@states("E27", "Q3", case="fillup_then_exclusive_join_refs")
def test_what_is_said_after_a_form_is_what_is_said_without_one(told: Told):
    assert told.answers == ["", "left|", "", "|right"]


@states("E27", "Q3", case="fillup_on_one_branch_only")
def test_a_model_that_refers_to_a_form_runs_without_it(told: Told):
    assert told.answers == ["", "with form", "without form"]
    assert told.requests[-1]["messages"][-1]["content"] == "x=[] q=two"


@states("E27", "Q3", case="loop_never_runs_message_refers_to_body")
def test_a_message_about_a_body_that_never_ran_is_said(told: Told):
    assert told.answer == "end_3_last=()"


@states("Q3", case="fillup_then_unequal_join")
def test_a_join_after_a_form_waits_and_runs_once(told: Told):
    assert told.answers == ["", "J[b|a1c];"]
    assert told.count("+StringTransform:J") == told.count("+Message:Out") == 1
    assert told.finished("StringTransform:J")["inputs"]["LLM:C@content"] == "a1c"


@states("E27")
@pytest.mark.parametrize(("value", "answer"), [("1", "it is left"), ("2", "it is right")])
def test_of_several_alternatives_one_is_taken_whose_nodes_have_run(stage: Stage, value: str, answer: str):
    params = {
        "begin": {"inputs": {"a": {"type": "line"}}},
        "Switch:S": switches("begin@a", "=", "1", ["StringTransform:L"], ["StringTransform:R"]),
        "StringTransform:L": makes("left"),
        "StringTransform:R": makes("right"),
        "Message:Out": says("it is {StringTransform:L@result}", "it is {StringTransform:R@result}"),
    }
    edges = "begin -> Switch:S -> StringTransform:L, StringTransform:R -> Message:Out"

    told = stage.play(drawn(edges, params), {"inputs": {"a": {"value": value}}})

    assert told.answer == answer


# -- Q4: edges drawn more than once ----------------------------------------------------------------------------------


@states("Q4", case="parallel_full_mesh")
def test_nodes_that_several_nodes_lead_to_run_once(told: Told):
    assert told.answer == "abc_abd"
    assert told.count("+StringTransform:C") == told.count("+StringTransform:D") == 1


@states("Q4", case="parallel_full_mesh_messages")
def test_messages_that_several_models_lead_to_are_said_once(told: Told):
    assert told.answer == "C_rarb;D_rarb;"
    assert len(told.requests) == 2


@states("Q4")
def test_an_edge_that_is_drawn_twice_is_one_edge(stage: Stage):
    document = drawn("begin -> Message:A, Message:B", {"Message:A": says("a"), "Message:B": says("b")})
    document["components"]["begin"]["downstream"] = ["Message:A", "Message:B", "Message:A"]

    told = stage.play(document)

    assert told.answer == "ab"


# -- Q5, Q6: siblings ------------------------------------------------------------------------------------------------


@states("Q5")
@pytest.mark.parametrize("order", ["StringTransform:A, StringTransform:B", "StringTransform:B, StringTransform:A"])
def test_a_node_waits_for_a_sibling_that_it_refers_to(stage: Stage, order: str):
    params = {
        "StringTransform:A": makes("{StringTransform:B@result}!"),
        "StringTransform:B": makes("b"),
        "Message:Out": says("{StringTransform:A@result}"),
    }

    told = stage.play(drawn(f"begin -> {order}; StringTransform:A -> Message:Out", params))

    assert told.answer == "b!"


@states("E27", "Q3", "Q5", case="variables_forward_reference")
def test_a_reference_to_what_comes_later_is_empty_and_holds_nobody_up(told: Told):
    assert told.answer == "xlater"


@states("Q6")
def test_a_slow_sibling_holds_nobody_up_and_is_heard_in_its_place():
    player = Player(canvas_of("begin -> quick, slow; quick -> say1; slow -> say2")).begin().report("begin")
    player.claim("slow")

    player.report("quick").report("say1")

    assert player.spoken == ["say1"]
    assert player.live == ["slow"]


@states("Q6")
def test_who_is_faster_does_not_change_the_order_of_what_is_heard():
    player = Player(canvas_of("begin -> slow, quick; slow -> say1; quick -> say2")).begin().report("begin")

    player.report("quick").report("say2").report("slow").report("say1")

    assert player.spoken == ["say1", "say2"]


# -- Q12: circles ----------------------------------------------------------------------------------------------------


@states("Q12")
def test_a_circle_runs_again_and_fails_at_its_cap():
    canvas = canvas_of("begin -> work -> pick -> work, end")

    player = Player(canvas, script_of(pick=chose("work"))).play()

    assert player.status is RunStatus.FAILED
    assert player.path.count("work") == MAX_ORDINAL == 1000


# -- pending_branch --------------------------------------------------------------------------------------------------


@states("pending_branch", case="fillup_beside_other_branch")
def test_a_branch_beside_a_form_goes_on_before_the_form_is_asked(told: Told):
    assert told.answers == ["side hi", "x=1"]
    assert told.story(0)[-2:] == ["-Message:Side", "user_inputs"]
    assert "+Message:Side" not in told.story(1)
