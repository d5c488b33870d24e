"""Nodes that ask a model: what is heard of an error, how often it is asked, and what is kept of its reasoning."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from canvas.outcome import Finished
from components.nodes.llm.llm import llm
from components.nodes.llm.model_call import GenerationParams, retry_wait
from providers.models.types.chat import ChatRequest, Completion, ContentDelta, Delta, ModelSpec
from tests.deviations.told import Stage, Told, asks, drawn, makes, rest_differs, says, states, visible_only
from tests.fakes import FakeContext, run

SPOKEN = "begin -> LLM:A -> Message:Out"
SILENT = "begin -> LLM:A -> StringTransform:T -> Message:Out"
SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}}
HELPER = {"component_name": "Agent", "name": "Helper", "params": asks("{sys.query}", llm_id="sub-model")}
CALLS_HELPER = {"tool_calls": [{"name": "Helper_0", "arguments": {"user_prompt": "p"}}]}


def spoken(**params: Any) -> dict[str, Any]:
    return drawn(SPOKEN, {"LLM:A": asks("{sys.query}", **params), "Message:Out": says("{LLM:A@content}")})


def silent(**params: Any) -> dict[str, Any]:
    nodes = {"StringTransform:T": makes("[{LLM:A@content}]"), "Message:Out": says("{StringTransform:T@result}")}
    return drawn(SILENT, {"LLM:A": asks("{sys.query}", **params), **nodes})


def structured(**params: Any) -> dict[str, Any]:
    outputs = {"structured": {**SCHEMA, "value": {"title": "of last time"}}}
    asked = asks("{sys.query}", outputs=outputs, delay_after_error=0, **params)
    return drawn(SPOKEN, {"LLM:A": asked, "Message:Out": says("{LLM:A@structured.title}")})


def leading(*tools: Any, **params: Any) -> dict[str, Any]:
    agent = asks("{sys.query}", sys_prompt="You lead.", tools=list(tools), **params)
    return drawn("begin -> Agent:A -> Message:Out", {"Agent:A": agent, "Message:Out": says("{Agent:A@content}")})


# -- E10: an error while the answer is heard -------------------------------------------------------------------------


@states("E10", case="llm_empty_query")
def test_a_question_that_cannot_be_put_is_heard_as_an_error_and_the_run_ends_well(told: Told):
    answer = told.outputs("LLM:A")

    assert told.answer == answer["content"] == answer["_ERROR"] != ""
    assert told.answer.startswith("**ERROR**: ")
    assert (told.error, told.story()[-1], len(told.requests)) == ("", "workflow_finished", 0)


@states("E10")
def test_an_answer_that_breaks_off_ends_with_the_error(stage: Stage):
    told = stage.play(spoken(), llm=[{"reply": "Hello", "error_after": "invalid request: gone"}])

    assert told.answer == "Hello**ERROR**: INVALID_REQUEST - invalid request: gone"
    answer = told.outputs("LLM:A")
    assert answer["content"] == answer["_ERROR"] == told.answer.removeprefix("Hello")
    assert (told.error, told.story()[-1]) == ("", "workflow_finished")


# -- E11: citing what tools bring ------------------------------------------------------------------------------------

SEARCH = {"component_name": "TavilySearch", "name": "Search", "params": {"api_key": "k"}}


@states("E11")
@pytest.mark.parametrize(
    ("tool", "cite", "is_guided"), [(SEARCH, True, True), (SEARCH, False, False), (HELPER, True, False)]
)
def test_an_agent_is_told_how_to_cite_when_a_tool_of_its_own_may_bring_sources(
    stage: Stage, tool: Any, cite: bool, is_guided: bool
):
    told = stage.play(leading(tool, cite=cite), llm=[{"reply": "done"}])

    system = told.requests[0]["messages"][0]["content"]
    assert ("[ID:" in system) is is_guided
    assert system.startswith("You lead.")


# -- E12: how often a model is asked ---------------------------------------------------------------------------------


@states("E12", case="llm_error_not_streamed_retry_ok")
def test_a_silent_node_asks_again_after_any_error(told: Told):
    assert (told.answer, len(told.requests)) == ("A:_[second try]", 2)
    assert rest_differs(told, str) is None


@states("E12", case="llm_error_rate_limit_retry_ok")
def test_a_silent_node_counts_its_retries_once(told: Told):
    assert (told.answer, len(told.requests)) == ("A:_[third]", 3)
    assert rest_differs(told, str) is None


@states("E12", case="llm_error_streamed_rate_limit_retry")
def test_a_speaking_node_asks_again_before_anything_is_heard(told: Told):
    assert (told.answer, len(told.requests)) == ("A:_after retry", 2)
    assert rest_differs(told, str) is None


@states("E12", case="llm_structured_error_then_ok")
def test_a_structured_answer_is_asked_for_again_after_an_error(told: Told):
    assert (told.outputs("LLM:A")["structured"]["title"], len(told.requests)) == ("T", 2)
    assert rest_differs(told, str) is None


@states("E12", case="categorize_rate_limit_then_ok")
def test_a_category_is_asked_for_again_when_the_provider_is_busy(told: Told):
    assert (told.answer, len(told.requests)) == ("refund path", 3)
    assert rest_differs(told, str) is None


@states("E12", case="mixed_panel_with_failures")
def test_of_several_nodes_each_counts_its_own_retries(told: Told):
    assert (told.answer, len(told.requests)) == ("C:_cc", 5)
    assert rest_differs(told, str) is None


@states("E12")
@pytest.mark.parametrize(
    ("document", "error", "requests"),
    [
        (silent(max_retries=2, delay_after_error=0), "429 rate limit", 3),
        (silent(max_retries=2, delay_after_error=0), "invalid request: no", 3),
        (silent(), "429 rate limit", 1),
        (spoken(max_retries=2, delay_after_error=0), "429 rate limit", 3),
        (spoken(max_retries=2, delay_after_error=0), "invalid request: no", 1),
        (structured(max_retries=2), "503 server unavailable", 3),
    ],
)
def test_a_model_is_asked_once_more_for_each_retry_and_never_more(
    stage: Stage, document: dict[str, Any], error: str, requests: int
):
    told = stage.play(document, llm=[{"error": error}])

    assert len(told.requests) == requests


@states("E12")
def test_waiting_times_double_and_end_at_a_minute():
    params = GenerationParams(delay_after_error=2)

    assert [retry_wait(params, attempt) for attempt in (0, 1, 2, 4, 5, 40)] == [2, 4, 8, 32, 60, 60]


# -- E21: structured answers -----------------------------------------------------------------------------------------


@states("E21", case="llm_structured_not_json")
def test_a_text_that_is_no_json_is_a_failure(told: Told):
    assert told.error == told.outputs("LLM:A")["_ERROR"] != ""
    assert told.outputs("LLM:A")["structured"] is None
    assert told.answer == ""


@states("E21")
def test_a_text_that_is_no_json_is_asked_for_again(stage: Stage):
    told = stage.play(structured(max_retries=1), llm=[{"reply": "I cannot", "times": 1}, {"reply": '{"title": "T"}'}])

    assert (told.answer, len(told.requests)) == ("T", 2)


@states("E21")
def test_the_value_of_last_time_is_no_part_of_the_schema_that_a_model_sees(stage: Stage):
    told = stage.play(structured(), llm=[{"reply": '{"title": "T"}'}])

    system = told.requests[0]["messages"][0]["content"]
    assert '"title"' in system
    assert "of last time" not in system


# -- E22, E23: streams and reasoning ---------------------------------------------------------------------------------


class Stutterer:
    """A model whose second piece is all that it has said so far."""

    spec = ModelSpec("m", "m", "Fake", None, context_tokens=8192)

    async def complete(self, request: ChatRequest) -> Completion:
        return Completion("haha")

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        yield ContentDelta("ha")
        yield ContentDelta("ha")


@states("E22")
def test_a_piece_that_repeats_the_text_so_far_is_heard():
    ctx = FakeContext(globals={"sys.query": "Q"}, is_streaming=True, models={"m": Stutterer()})

    outcome = run(llm, asks("laugh", llm_id="m"), ctx)

    assert ctx.pieces == ["ha", "ha"]
    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "haha"


@states("E23", case="llm_reasoning_streamed")
def test_reasoning_is_heard_and_not_kept_in_the_content_of_the_message(told: Told):
    assert told.answer == "<think>step one, step two</think>final answer"
    assert told.outputs("Message:Out")["content"] == "final answer"
    assert told.outputs("LLM:A")["content"] == told.answer
    assert rest_differs(told, visible_only(told.case)) is None


@pytest.mark.parametrize(
    ("told", "content"),
    [
        ("agent_parallel_tool_calls", "both done"),
        ("agent_search_tool", "Paris it is"),
        ("agent_subagent_streamed", "Final: 42"),
        ("agent_retrieval_tool", "Tea is a drink [ID:1]."),
    ],
    indirect=["told"],
)
@states("E23")
def test_what_an_agent_tells_about_its_tools_is_no_part_of_the_content(told: Told, content: str):
    assert told.outputs("Message:Out")["content"] == content
    assert told.answer.startswith("<think>Running the ")
    assert rest_differs(told, visible_only(told.case)) is None


# -- lazy_stream, tool_error_text ------------------------------------------------------------------------------------


@states("lazy_stream", case="llm_stream_never_used")
def test_a_model_whose_text_nobody_reads_is_not_asked_and_its_node_finishes_at_once(told: Told):
    assert (told.answer, len(told.requests)) == ("literal only", 0)
    assert told.story().index("-LLM:A") < told.story().index("+Message:Out")


@states("lazy_stream")
def test_every_reader_gets_the_final_text_of_a_model_that_speaks(stage: Stage):
    params = {
        "LLM:A": asks("{sys.query}"),
        "Message:Out": says("{LLM:A@content};"),
        "StringTransform:T": makes("<{LLM:A@content}>"),
        "Message:After": says("{StringTransform:T@result}"),
    }

    told = stage.play(
        drawn("begin -> LLM:A -> Message:Out, StringTransform:T; StringTransform:T -> Message:After", params),
        llm=[{"reply": "hello"}],
    )

    assert (told.answer, len(told.requests)) == ("hello;<hello>", 1)


@states("E23", "tool_error_text", case="agent_unknown_tool")
def test_a_model_reads_that_it_asked_for_a_tool_that_does_not_exist(told: Told):
    assert told.answer == "<think>Running the nope_9 tool...</think>recovered"
    assert told.requests[1]["messages"][-1]["content"] == "LLM tool nope_9 does not exist"
    assert told.outputs("Message:Out")["content"] == "recovered"


@states("E23", "tool_error_text", case="agent_bad_tool_arguments")
def test_a_model_reads_that_its_arguments_are_no_object(told: Told):
    assert told.answer == "<think>Running the Helper_0 tool...</think>recovered"
    assert told.requests[1]["messages"][-1]["content"] == "Tool arguments for Helper_0 must be an object, got list"
    assert told.outputs("Message:Out")["content"] == "recovered"


# -- T18: errors of a provider ---------------------------------------------------------------------------------------


@states("T18")
@pytest.mark.parametrize("max_retries", [0, 1])
def test_an_error_names_its_cause_however_often_it_was_tried(stage: Stage, max_retries: int):
    document = silent(max_retries=max_retries, delay_after_error=0)

    told = stage.play(document, llm=[{"error": "429 rate limit"}])

    assert told.error == "**ERROR**: RATE_LIMIT_EXCEEDED - 429 rate limit"


@states("T18")
def test_a_busy_provider_does_not_have_tools_run_twice(stage: Stage):
    told = stage.play(
        leading(HELPER, max_retries=1, delay_after_error=0, max_rounds=3),
        llm=[
            {"model": "sub-model", "reply": "helped"},
            {"last_role": "tool", "error": "503 server unavailable", "times": 1},
            {"last_role": "tool", "reply": "done"},
            CALLS_HELPER,
        ],
    )

    assert told.answer.endswith("</think>done")
    assert [request["model"] for request in told.requests].count("sub-model") == 1
