"""RAGFlow's own canvases, which differ only in blanks and reasoning."""

import json

import pytest

from tests.deviations.observed_run import (
    CaseResult,
    covers_rows,
    first_remaining_difference,
    without_blanks,
    without_reasoning,
)

# -- E1: the demo of all nodes ---------------------------------------------------------------------------------------


@covers_rows("E1", case="ragflow_all_categorize")
def test_demo_shows_a_category_with_its_blanks(result: CaseResult):
    assert result.answer == "分类结果=Retrieval -> Retrieval"


@covers_rows("E1", case="ragflow_all_text")
def test_demo_shows_split_text_with_its_blanks(result: CaseResult):
    assert result.answer == '原始: hello big world\nsplit: ["hello", "big", "world"]\nmerge: hello|big|world'


@covers_rows("E1", case="ragflow_all_var_aggregator")
def test_demo_shows_an_aggregated_value_with_its_blanks(result: CaseResult):
    assert result.answer == "picked=1 \n(a=1, \nb=2, \nc=c)"


@covers_rows("E1", case="ragflow_all_data_ops")
def test_switch_with_a_missing_target_node_continues_with_the_others(result: CaseResult):
    assert result.answer.startswith('DataOperations 输出: [{"id": 2, "score": 0.88, "title": "Beta", "tag": "demo"}, ')
    assert result.error == ""
    assert result.steps()[-1] == "workflow_finished"


@covers_rows("E1", "E7", "Q11", case="ragflow_all_loop")
def test_loop_around_a_form_ends_on_the_terminating_answer(result: CaseResult):
    assert result.answers == ["", "", "继续循环中，你输入的是：0", "循环结束。你最后一次输入为：1"]
    assert [run.waiting is not None for run in result.runs] == [True, True, True, False]


@covers_rows("E1", case="ragflow_all_condition_yes")
def test_demo_condition_selects_its_message(result: CaseResult):
    assert result.answer == "命中 IF: x==yes"


@covers_rows("E1", case="ragflow_all_message")
def test_demo_shows_a_plain_message_unchanged(result: CaseResult):
    assert result.answer == "这是 Message 节点演示。"


@covers_rows("E1", case="ragflow_all_retrieval")
def test_a_search_without_a_dataset_fails(result: CaseResult):
    assert result.error == result.outputs("Retrieval:KBSearch")["_ERROR"] == "No dataset is selected."


@covers_rows("E1", case="ragflow_all_wait_input")
def test_demo_shows_the_value_entered_in_a_form(result: CaseResult):
    assert result.answer == "你输入的是：ok"


@pytest.mark.parametrize(
    "result",
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
@covers_rows("E1")
def test_demo_differs_from_its_recording_only_in_blanks(result: CaseResult):
    assert first_remaining_difference(result, without_blanks, without_blanks) is None


# -- E23: agents with tools ------------------------------------------------------------------------------------------


@covers_rows("E23", case="ragflow_cajal_scientific_paper_agent")
def test_agent_with_a_dataset_outputs_the_answer_without_reasoning(result: CaseResult):
    assert result.outputs("Message:OrangeYearsShine")["content"] == "Paper on tea"


@covers_rows("E23", case="ragflow_reflective_academic_paper_generator")
def test_reflective_agent_outputs_the_answer_without_reasoning(result: CaseResult):
    assert result.outputs("Message:OrangeYearsShine")["content"] == "Paper"


@covers_rows("E23", case="ragflow_data_analysis_beginner_assistant")
def test_agent_with_code_tool_outputs_the_answer_without_reasoning(result: CaseResult):
    assert result.outputs("Message:VastWaspsBrush")["content"] == "The mean is 2"
    assert not [name for name in json.loads(result.requests[1]["messages"][-1]["content"]) if name.startswith("_")]


@covers_rows("E23", case="ragflow_user_interaction")
def test_agent_after_a_form_outputs_the_answer_without_reasoning(result: CaseResult):
    assert result.outputs("Message:FreshWallsStudy")["content"] == "found tea"


@covers_rows("E23", case="ragflow_your_starter_dataset_chatbot")
def test_chatbot_outputs_the_answer_without_reasoning_in_each_turn(result: CaseResult):
    node = "Message:BrownPugsStick"
    assert [result.outputs(node, run)["content"] for run in range(2)] == ["Tea is a drink.", "I do not know"]


@pytest.mark.parametrize(
    "result",
    [
        "ragflow_cajal_scientific_paper_agent",
        "ragflow_reflective_academic_paper_generator",
        "ragflow_user_interaction",
        "ragflow_your_starter_dataset_chatbot",
    ],
    indirect=True,
)
@covers_rows("E23")
def test_agent_case_differs_from_its_recording_only_in_reasoning(result: CaseResult):
    assert first_remaining_difference(result, without_reasoning(result.case)) is None
