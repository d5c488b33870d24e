"""Nodes that call a model: streamed errors, numbers of retries, and reasoning in outputs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from canvas.outcome import Finished
from components.nodes.llm.llm import llm
from components.nodes.llm.model_call import GenerationParams, retry_wait
from providers.models.types.chat import ChatRequest, Completion, ContentDelta, Delta, ModelSpec
from tests.deviations.observed_run import (
    CaseResult,
    CaseRunner,
    covers_rows,
    dsl_of,
    first_remaining_difference,
    llm_params,
    message_params,
    text_params,
    without_reasoning,
)
from tests.fakes import FakeContext, run

STREAMED_EDGES = "begin -> LLM:A -> Message:Out"
SILENT_EDGES = "begin -> LLM:A -> StringTransform:T -> Message:Out"
SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}}
HELPER = {"component_name": "Agent", "name": "Helper", "params": llm_params("{sys.query}", llm_id="sub-model")}
CALLS_HELPER = {"tool_calls": [{"name": "Helper_0", "arguments": {"user_prompt": "p"}}]}


def streaming_llm(**params: Any) -> dict[str, Any]:
    return dsl_of(
        STREAMED_EDGES, {"LLM:A": llm_params("{sys.query}", **params), "Message:Out": message_params("{LLM:A@content}")}
    )


def non_streaming_llm(**params: Any) -> dict[str, Any]:
    nodes = {
        "StringTransform:T": text_params("[{LLM:A@content}]"),
        "Message:Out": message_params("{StringTransform:T@result}"),
    }
    return dsl_of(SILENT_EDGES, {"LLM:A": llm_params("{sys.query}", **params), **nodes})


def structured_llm(**params: Any) -> dict[str, Any]:
    outputs = {"structured": {**SCHEMA, "value": {"title": "of last time"}}}
    params_of_llm = llm_params("{sys.query}", outputs=outputs, delay_after_error=0, **params)
    return dsl_of(STREAMED_EDGES, {"LLM:A": params_of_llm, "Message:Out": message_params("{LLM:A@structured.title}")})


def agent_with_tools(*tools: Any, **params: Any) -> dict[str, Any]:
    agent = llm_params("{sys.query}", sys_prompt="You lead.", tools=list(tools), **params)
    return dsl_of(
        "begin -> Agent:A -> Message:Out", {"Agent:A": agent, "Message:Out": message_params("{Agent:A@content}")}
    )


# -- E10: an error in a streamed answer ------------------------------------------------------------------------------


@covers_rows("E10", case="llm_empty_query")
def test_empty_prompt_streams_an_error_and_the_run_succeeds(result: CaseResult):
    answer = result.outputs("LLM:A")

    assert result.answer == answer["content"] == answer["_ERROR"] != ""
    assert result.answer.startswith("**ERROR**: ")
    assert (result.error, result.steps()[-1], len(result.requests)) == ("", "workflow_finished", 0)


@covers_rows("E10")
def test_interrupted_model_stream_ends_with_the_error_text(case_runner: CaseRunner):
    result = case_runner.run(streaming_llm(), llm=[{"reply": "Hello", "error_after": "invalid request: gone"}])

    assert result.answer == "Hello**ERROR**: INVALID_REQUEST - invalid request: gone"
    answer = result.outputs("LLM:A")
    assert answer["content"] == answer["_ERROR"] == result.answer.removeprefix("Hello")
    assert (result.error, result.steps()[-1]) == ("", "workflow_finished")


# -- E11: citing sources of tools ------------------------------------------------------------------------------------

SEARCH = {"component_name": "TavilySearch", "name": "Search", "params": {"api_key": "k"}}


@covers_rows("E11")
@pytest.mark.parametrize(
    ("tool", "cite", "is_guided"), [(SEARCH, True, True), (SEARCH, False, False), (HELPER, True, False)]
)
def test_agent_prompt_has_citation_rules_only_with_a_source_tool(
    case_runner: CaseRunner, tool: Any, cite: bool, is_guided: bool
):
    result = case_runner.run(agent_with_tools(tool, cite=cite), llm=[{"reply": "done"}])

    system = result.requests[0]["messages"][0]["content"]
    assert ("[ID:" in system) is is_guided
    assert system.startswith("You lead.")


# -- E12: retries of model requests ---------------------------------------------------------------------------------


@covers_rows("E12", case="llm_error_not_streamed_retry_ok")
def test_non_streaming_node_retries_after_any_error(result: CaseResult):
    assert (result.answer, len(result.requests)) == ("A:_[second try]", 2)
    assert first_remaining_difference(result, str) is None


@covers_rows("E12", case="llm_error_rate_limit_retry_ok")
def test_non_streaming_node_counts_each_retry_once(result: CaseResult):
    assert (result.answer, len(result.requests)) == ("A:_[third]", 3)
    assert first_remaining_difference(result, str) is None


@covers_rows("E12", case="llm_error_streamed_rate_limit_retry")
def test_streaming_node_retries_before_the_first_text_delta(result: CaseResult):
    assert (result.answer, len(result.requests)) == ("A:_after retry", 2)
    assert first_remaining_difference(result, str) is None


@covers_rows("E12", case="llm_structured_error_then_ok")
def test_structured_output_is_requested_again_after_an_error(result: CaseResult):
    assert (result.outputs("LLM:A")["structured"]["title"], len(result.requests)) == ("T", 2)
    assert first_remaining_difference(result, str) is None


@covers_rows("E12", case="categorize_rate_limit_then_ok")
def test_categorize_retries_when_the_provider_is_rate_limited(result: CaseResult):
    assert (result.answer, len(result.requests)) == ("refund path", 3)
    assert first_remaining_difference(result, str) is None


@covers_rows("E12", case="mixed_panel_with_failures")
def test_each_node_counts_its_own_retries(result: CaseResult):
    assert (result.answer, len(result.requests)) == ("C:_cc", 5)
    assert first_remaining_difference(result, str) is None


@covers_rows("E12")
@pytest.mark.parametrize(
    ("document", "error", "requests"),
    [
        (non_streaming_llm(max_retries=2, delay_after_error=0), "429 rate limit", 3),
        (non_streaming_llm(max_retries=2, delay_after_error=0), "invalid request: no", 3),
        (non_streaming_llm(), "429 rate limit", 1),
        (streaming_llm(max_retries=2, delay_after_error=0), "429 rate limit", 3),
        (streaming_llm(max_retries=2, delay_after_error=0), "invalid request: no", 1),
        (structured_llm(max_retries=2), "503 server unavailable", 3),
    ],
)
def test_model_request_count_is_one_plus_the_retries(
    case_runner: CaseRunner, document: dict[str, Any], error: str, requests: int
):
    result = case_runner.run(document, llm=[{"error": error}])

    assert len(result.requests) == requests


@covers_rows("E12")
def test_retry_wait_doubles_up_to_one_minute():
    params = GenerationParams(delay_after_error=2)

    assert [retry_wait(params, attempt) for attempt in (0, 1, 2, 4, 5, 40)] == [2, 4, 8, 32, 60, 60]


# -- E21: structured answers -----------------------------------------------------------------------------------------


@covers_rows("E21", case="llm_structured_not_json")
def test_structured_output_that_is_not_json_fails_the_node(result: CaseResult):
    assert result.error == result.outputs("LLM:A")["_ERROR"] != ""
    assert result.outputs("LLM:A")["structured"] is None
    assert result.answer == ""


@covers_rows("E21")
def test_structured_output_that_is_not_json_is_requested_again(case_runner: CaseRunner):
    result = case_runner.run(
        structured_llm(max_retries=1), llm=[{"reply": "I cannot", "times": 1}, {"reply": '{"title": "T"}'}]
    )

    assert (result.answer, len(result.requests)) == ("T", 2)


@covers_rows("E21")
def test_previous_value_is_not_part_of_the_schema_in_the_prompt(case_runner: CaseRunner):
    result = case_runner.run(structured_llm(), llm=[{"reply": '{"title": "T"}'}])

    system = result.requests[0]["messages"][0]["content"]
    assert '"title"' in system
    assert "of last time" not in system


# -- E22, E23: streams and reasoning ---------------------------------------------------------------------------------


class RepeatingModel:
    """A model whose second text delta repeats the text so far."""

    spec = ModelSpec("m", "m", "Fake", None, context_tokens=8192)

    async def complete(self, request: ChatRequest) -> Completion:
        return Completion("haha")

    async def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        yield ContentDelta("ha")
        yield ContentDelta("ha")


@covers_rows("E22")
def test_text_delta_that_repeats_the_text_so_far_is_streamed():
    ctx = FakeContext(globals={"sys.query": "Q"}, is_streaming=True, models={"m": RepeatingModel()})

    outcome = run(llm, llm_params("laugh", llm_id="m"), ctx)

    assert ctx.text_deltas == ["ha", "ha"]
    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "haha"


@covers_rows("E23", case="llm_reasoning_streamed")
def test_reasoning_is_streamed_but_not_in_the_message_content(result: CaseResult):
    assert result.answer == "<think>step one, step two</think>final answer"
    assert result.outputs("Message:Out")["content"] == "final answer"
    assert result.outputs("LLM:A")["content"] == result.answer
    assert first_remaining_difference(result, without_reasoning(result.case)) is None


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ("agent_parallel_tool_calls", "both done"),
        ("agent_search_tool", "Paris it is"),
        ("agent_subagent_streamed", "Final: 42"),
        ("agent_retrieval_tool", "Tea is a drink [ID:1]."),
    ],
    indirect=["result"],
)
@covers_rows("E23")
def test_tool_progress_of_an_agent_is_not_in_the_message_content(result: CaseResult, content: str):
    assert result.outputs("Message:Out")["content"] == content
    assert result.answer.startswith("<think>Running the ")
    assert first_remaining_difference(result, without_reasoning(result.case)) is None


# -- lazy_stream, tool_error_text ------------------------------------------------------------------------------------


@covers_rows("lazy_stream", case="llm_stream_never_used")
def test_model_without_a_reader_is_not_called_and_its_node_finishes(result: CaseResult):
    assert (result.answer, len(result.requests)) == ("literal only", 0)
    assert result.steps().index("-LLM:A") < result.steps().index("+Message:Out")


@covers_rows("lazy_stream")
def test_every_reader_gets_the_final_text_of_a_streaming_model(case_runner: CaseRunner):
    params = {
        "LLM:A": llm_params("{sys.query}"),
        "Message:Out": message_params("{LLM:A@content};"),
        "StringTransform:T": text_params("<{LLM:A@content}>"),
        "Message:After": message_params("{StringTransform:T@result}"),
    }

    result = case_runner.run(
        dsl_of("begin -> LLM:A -> Message:Out, StringTransform:T; StringTransform:T -> Message:After", params),
        llm=[{"reply": "hello"}],
    )

    assert (result.answer, len(result.requests)) == ("hello;<hello>", 1)


@covers_rows("E23", "tool_error_text", case="agent_unknown_tool")
def test_call_of_an_unknown_tool_is_answered_with_an_error_text(result: CaseResult):
    assert result.answer == "<think>Running the nope_9 tool...</think>recovered"
    assert result.requests[1]["messages"][-1]["content"] == "LLM tool nope_9 does not exist"
    assert result.outputs("Message:Out")["content"] == "recovered"


@covers_rows("E23", "tool_error_text", case="agent_bad_tool_arguments")
def test_tool_arguments_that_are_not_an_object_are_answered_with_an_error_text(result: CaseResult):
    assert result.answer == "<think>Running the Helper_0 tool...</think>recovered"
    assert result.requests[1]["messages"][-1]["content"] == "Tool arguments for Helper_0 must be an object, got list"
    assert result.outputs("Message:Out")["content"] == "recovered"


# -- T18: errors of a provider ---------------------------------------------------------------------------------------


@covers_rows("T18")
@pytest.mark.parametrize("max_retries", [0, 1])
def test_model_error_names_its_cause_with_and_without_retries(case_runner: CaseRunner, max_retries: int):
    document = non_streaming_llm(max_retries=max_retries, delay_after_error=0)

    result = case_runner.run(document, llm=[{"error": "429 rate limit"}])

    assert result.error == "**ERROR**: RATE_LIMIT_EXCEEDED - 429 rate limit"


@covers_rows("T18")
def test_retry_of_a_model_call_does_not_repeat_its_tool_calls(case_runner: CaseRunner):
    result = case_runner.run(
        agent_with_tools(HELPER, max_retries=1, delay_after_error=0, max_rounds=3),
        llm=[
            {"model": "sub-model", "reply": "helped"},
            {"last_role": "tool", "error": "503 server unavailable", "times": 1},
            {"last_role": "tool", "reply": "done"},
            CALLS_HELPER,
        ],
    )

    assert result.answer.endswith("</think>done")
    assert [request["model"] for request in result.requests].count("sub-model") == 1
