"""RAGFlow's own canvases, where blanks and reasoning are all that is different."""

import json

import pytest

from tests.deviations.told import Told, rest_differs, states, visible_only, without_blanks

# -- E1: the demo of all nodes ---------------------------------------------------------------------------------------


@states("E1", case="ragflow_all_categorize")
def test_a_category_is_told_with_its_blanks(told: Told):
    assert told.answer == "分类结果=Retrieval -> Retrieval"


@states("E1", case="ragflow_all_text")
def test_parts_of_a_text_are_told_with_their_blanks(told: Told):
    assert told.answer == '原始: hello big world\nsplit: ["hello", "big", "world"]\nmerge: hello|big|world'


@states("E1", case="ragflow_all_var_aggregator")
def test_an_aggregated_value_is_told_with_its_blanks(told: Told):
    assert told.answer == "picked=1 \n(a=1, \nb=2, \nc=c)"


@states("E1", case="ragflow_all_data_ops")
def test_a_choice_that_names_a_missing_node_goes_on_with_the_others(told: Told):
    assert told.answer.startswith('DataOperations 输出: [{"id": 2, "score": 0.88, "title": "Beta", "tag": "demo"}, ')
    assert told.error == ""
    assert told.story()[-1] == "workflow_finished"


@states("E1", "E7", "Q11", case="ragflow_all_loop")
def test_a_loop_around_a_form_ends_when_the_answer_says_so(told: Told):
    assert told.answers == ["", "", "继续循环中，你输入的是：0", "循环结束。你最后一次输入为：1"]
    assert [run.waiting is not None for run in told.runs] == [True, True, True, False]


@states("E1", case="ragflow_all_condition_yes")
def test_a_condition_leads_to_its_text(told: Told):
    assert told.answer == "命中 IF: x==yes"


@states("E1", case="ragflow_all_message")
def test_a_plain_text_is_told_as_it_is(told: Told):
    assert told.answer == "这是 Message 节点演示。"


@states("E1", case="ragflow_all_retrieval")
def test_a_search_without_a_dataset_fails(told: Told):
    assert told.error == told.outputs("Retrieval:KBSearch")["_ERROR"] == "No dataset is selected."


@states("E1", case="ragflow_all_wait_input")
def test_what_a_form_was_given_is_told(told: Told):
    assert told.answer == "你输入的是：ok"


@pytest.mark.parametrize(
    "told",
    [
        "ragflow_all_categorize",
        "ragflow_all_condition_yes",
        "ragflow_all_message",
        "ragflow_all_retrieval",
        "ragflow_all_text",
        "ragflow_all_var_aggregator",
        "ragflow_all_wait_input",
    ],
    indirect=True,
)
@states("E1")
def test_but_for_its_blanks_the_demo_does_what_was_recorded(told: Told):
    assert rest_differs(told, without_blanks, without_blanks) is None


# -- E23: agents with tools ------------------------------------------------------------------------------------------


@states("E23", case="ragflow_cajal_scientific_paper_agent")
def test_an_agent_with_a_dataset_keeps_the_visible_answer(told: Told):
    assert told.outputs("Message:OrangeYearsShine")["content"] == "Paper on tea"


@states("E23", case="ragflow_reflective_academic_paper_generator")
def test_a_reflective_agent_keeps_the_visible_answer(told: Told):
    assert told.outputs("Message:OrangeYearsShine")["content"] == "Paper"


@states("E23", case="ragflow_data_analysis_beginner_assistant")
def test_an_agent_that_runs_code_keeps_the_visible_answer(told: Told):
    assert told.outputs("Message:VastWaspsBrush")["content"] == "The mean is 2"
    assert not [name for name in json.loads(told.requests[1]["messages"][-1]["content"]) if name.startswith("_")]


@states("E23", case="ragflow_user_interaction")
def test_an_agent_after_a_form_keeps_the_visible_answer(told: Told):
    assert told.outputs("Message:FreshWallsStudy")["content"] == "found tea"


@states("E23", case="ragflow_your_starter_dataset_chatbot")
def test_each_turn_of_a_chatbot_keeps_its_visible_answer(told: Told):
    node = "Message:BrownPugsStick"
    assert [told.outputs(node, run)["content"] for run in range(2)] == ["Tea is a drink.", "I do not know"]


@pytest.mark.parametrize(
    "told",
    [
        "ragflow_cajal_scientific_paper_agent",
        "ragflow_reflective_academic_paper_generator",
        "ragflow_user_interaction",
        "ragflow_your_starter_dataset_chatbot",
    ],
    indirect=True,
)
@states("E23")
def test_but_for_what_is_kept_agents_do_what_was_recorded(told: Told):
    assert rest_differs(told, visible_only(told.case)) is None
