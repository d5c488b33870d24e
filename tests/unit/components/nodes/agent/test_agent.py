from typing import Any

import pytest
from pydantic import ValidationError

from canvas.outcome import Failed, Finished
from components.context import THINK_END, THINK_START
from components.nodes.agent.agent import AgentParams, agent, build_functions
from components.tools.framework.base import ToolResult
from providers.models.chat.catalogue import open_chat
from providers.models.chat.echo import echo_spec
from providers.models.chat.scripted import Script
from tests.fakes import FakeContext, run
from tests.unit.components.nodes.agent.agents import ECHO, HELPER, Calls, Log, ask, calls, echo_tool, only_tools, texts

RUNNING = f"{THINK_START}Running the echo_0 tool...{THINK_END}"


def streaming_context(**fields: Any) -> FakeContext:
    return FakeContext(globals={"sys.query": "Q"}, is_streaming=True, **fields)


def agent_params(**params: Any) -> AgentParams:
    with only_tools(echo_tool(Calls())):
        return AgentParams.model_validate({"llm_id": "m", **params})


# -- without tools ----------------------------------------------------------------------------------------------------


def test_agent_without_tools_sends_the_requests_of_an_llm_node():
    script = Script([{"error": "503", "times": 1}, {"reply": "hello"}])

    outcome, ctx = ask(script, tools=[], mcp=[], max_retries=1, delay_after_error=0, sys_prompt="S")

    assert outcome == Finished(outputs={"content": "hello"})
    assert [texts(request) for request in script.requests] == [[("system", "S"), ("user", "Q")]] * 2
    assert ctx.journal == {}


def test_agent_whose_output_is_unused_does_not_call_its_model():
    script = Script([{"reply": "hello"}])

    with only_tools(echo_tool(Calls())):
        outcome, _ = ask(script, FakeContext(has_reader=False), tools=[ECHO])

    assert outcome == Finished()
    assert script.requests == ()


# -- offered functions ------------------------------------------------------------------------------------------------


def test_tools_are_offered_under_numbered_names():
    assert list(build_functions(agent_params(tools=[ECHO, ECHO]))) == ["echo_0", "echo_1"]


def test_function_name_and_description_of_the_author_are_offered():
    tool = {"component_name": "echo", "params": {"function_name": "look up", "description": "Looks up."}}

    functions = build_functions(agent_params(tools=[tool, ECHO]))

    assert list(functions) == ["look_up_0", "echo_1"]
    assert functions["look_up_0"].schema["function"]["description"] == "Looks up."


def test_a_sub_agent_is_offered_under_its_name_with_three_arguments():
    functions = build_functions(agent_params(tools=[ECHO, HELPER]))

    assert list(functions) == ["echo_0", "Sub_Agent_1"]
    parameters = functions["Sub_Agent_1"].schema["function"]["parameters"]
    assert parameters["required"] == ["user_prompt", "reasoning", "context"]
    assert {part["type"] for part in parameters["properties"].values()} == {"string"}
    assert parameters["properties"]["user_prompt"]["default"] == "do X"
    assert "default" not in parameters["properties"]["context"]


def test_default_task_with_a_reference_is_not_shown_to_the_model():
    helper = {**HELPER, "params": {**HELPER["params"], "user_prompt": "do {sys.query}"}}

    functions = build_functions(agent_params(tools=[helper]))

    assert "default" not in functions["Sub_Agent_0"].schema["function"]["parameters"]["properties"]["user_prompt"]


def test_mcp_tools_continue_the_numbers_of_tools():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    servers = [{"mcp_id": "s1", "tools": {"add": {"description": "Adds.", "inputSchema": schema}, "list news": {}}}]

    functions = build_functions(agent_params(tools=[ECHO], mcp=servers))

    assert list(functions) == ["echo_0", "add_1", "list_news_2"]
    assert functions["add_1"].schema["function"] == {"name": "add_1", "description": "Adds.", "parameters": schema}


def test_model_that_cannot_call_tools_is_offered_none_with_a_warning():
    ctx = FakeContext(globals={"sys.query": "Q"}, log=Log(), models={"echo": open_chat(echo_spec())})

    with only_tools(echo_tool(Calls())):
        outcome = run(agent, {"llm_id": "echo", "tools": [ECHO]}, ctx)

    assert outcome == Finished(outputs={"content": "Q"})
    assert [code for code, _ in ctx.warnings] == ["tools_not_offered"]
    assert "without its tools (echo_0)" in ctx.warnings[0][1]


# -- at load ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"llm_id": ""}, "[Agent] LLM is empty"),
        ({"max_rounds": -1}, "[Agent] Max rounds -1"),
        ({"max_rounds": True}, "[Agent] Max rounds True"),
        ({"max_rounds": "3"}, "[Agent] Max rounds 3"),
        ({"tool_mode": "magic"}, "[Agent] Tool mode magic"),
        ({"tools": {}}, "[Agent] Tools must be a list"),
        ({"tools": [7]}, "[Agent] Tools: each is an object"),
        ({"tools": [{"component_name": "Nope", "params": {}}]}, "Can't import Nope"),
        ({"tools": [{"component_name": "Echo", "params": {"top": "x"}}]}, "Echo configuration error: top: "),
        ({"tools": [{"component_name": "Echo", "params": [1]}]}, "Echo configuration error: "),
        (
            {"tools": [{"component_name": "Agent", "name": "a", "params": {"llm_id": ""}}]},
            "Agent configuration error: [Agent] LLM is empty",
        ),
        ({"mcp": {}}, "[Agent] MCP must be a list"),
        ({"mcp": ["s1"]}, "[Agent] MCP: each is an object"),
    ],
)
def test_invalid_agent_parameters_are_refused_at_load(params: dict[str, Any], reason: str):
    with pytest.raises(ValidationError) as refused:
        agent_params(**params)

    assert str(refused.value.errors()[0]["ctx"]["error"]).startswith(reason)


def test_refusal_of_invalid_parameters_contains_no_secrets():
    with pytest.raises(ValidationError) as refused:
        agent_params(tools=[{"component_name": "Echo", "params": {"api_key": "sk-secret", "top": "x"}}])

    assert "sk-secret" not in str(refused.value)


def test_agents_nested_deeper_than_eight_levels_are_refused():
    def nested(levels: int) -> dict[str, Any]:
        below = [{"component_name": "Agent", "name": "a", "params": nested(levels - 1)}] if levels > 1 else []
        return {"llm_id": "m", "tools": below}

    agent_params(**nested(8))
    with pytest.raises(ValidationError, match="nested deeper than 8 levels"):
        agent_params(**nested(9))


def test_agent_handles_its_own_errors_and_has_the_effect_class_keyed():
    assert agent.owns_errors
    assert agent.effect == "keyed"


# -- tool calls -------------------------------------------------------------------------------------------------------


def test_tool_is_called_and_its_result_is_in_the_next_request():
    recorded = Calls()
    script = Script([{"last_role": "tool", "reply": "Final: 42"}, calls(("echo_0", {"query": "find it"}))])

    with only_tools(echo_tool(recorded)):
        outcome, ctx = ask(script, tools=[ECHO], sys_prompt="You lead.")

    used = [{"name": "echo_0", "arguments": {"query": "find it"}, "results": "echo of find it"}]
    assert outcome == Finished(outputs={"content": "Final: 42", "use_tools": used})
    first, second = script.requests
    assert first.tools == second.tools == ("echo_0",)
    assert texts(second) == [
        ("system", "You lead."),
        ("user", "Q"),
        ("assistant", None),
        ("tool", "echo of find it"),
    ]
    assert second.messages[2]["tool_calls"][0]["function"] == {"name": "echo_0", "arguments": '{"query": "find it"}'}
    assert second.messages[3]["tool_call_id"] == second.messages[2]["tool_calls"][0]["id"]
    assert ctx.inputs == {"sys.query": "Q"}
    assert ctx.usage.calls == 2


def test_each_call_is_traced_under_the_path_of_its_agent():
    inner = {**HELPER, "params": {"llm_id": "sub", "tools": [ECHO]}}
    script = Script(
        [
            {"model": "sub", "last_role": "tool", "reply": "sub done"},
            {"model": "sub", **calls(("echo_0", {"query": "x"}))},
            {"last_role": "tool", "reply": "done"},
            calls(("Sub_Agent_0", {"user_prompt": "look"})),
        ]
    )

    with only_tools(echo_tool(Calls())):
        _, ctx = ask(script, tools=[inner])

    assert [(call["path"], call["tool_name"], call["result"]) for call in ctx.traces] == [
        ("Lead-->Sub Agent", "echo_0", "echo of x"),
        ("Lead", "Sub_Agent_0", "sub done"),
    ]
    assert all(call["elapsed_time"] >= 0 for call in ctx.traces)
    assert ctx.traces[0]["arguments"] == {"query": "x"}


def test_mcp_tool_call_without_a_configured_server_returns_an_error():
    script = Script([{"last_role": "tool", "reply": "ok"}, calls(("add_0", {"a": 1}))])

    ask(script, mcp=[{"mcp_id": "s1", "tools": {"add": {}}}])

    assert texts(script.requests[1])[-1] == ("tool", "MCP server s1 is not configured for this tenant.")


# -- sub-agents -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (
            {"user_prompt": "do", "reasoning": "why", "context": "ctx"},
            "\nREASONING:\nwhy\n\nCONTEXT:\nctx\n\nQUERY:\ndo\n",
        ),
        ({"user_prompt": "do", "context": "ctx"}, "\nCONTEXT:\nctx\n\nQUERY:\ndo\n"),
        ({"user_prompt": "do", "reasoning": ""}, "do"),
        ({"user_prompt": "tell me {sys.query} and {env.key}"}, "tell me {sys.query} and {env.key}"),
        ({}, "do X"),
    ],
)
def test_question_of_a_sub_agent_is_made_from_the_models_arguments(arguments: dict[str, Any], question: str):
    script = Script(
        [{"model": "sub", "reply": "42"}, {"last_role": "tool", "reply": "ok"}, calls(("Sub_Agent_0", arguments))]
    )

    _, ctx = ask(script, tools=[HELPER])

    assert [texts(request) for request in script.requests if request.model == "sub"] == [
        [("system", "You help Q."), ("user", question)]
    ]
    assert texts(script.requests[-1])[-1] == ("tool", "42")
    assert ctx.inputs == {"sys.query": "Q"}


def test_sub_agent_without_a_task_uses_its_own_prompts():
    helper = {**HELPER, "params": {"llm_id": "sub", "prompts": "Say {sys.query}"}}
    script = Script([{"model": "sub", "reply": "42"}, {"last_role": "tool", "reply": "ok"}, calls(("Sub_Agent_0", ""))])

    ask(script, tools=[helper])

    assert texts(script.requests[1]) == [("user", "Say Q")]


def test_sub_agent_is_not_streamed():
    inner = {**HELPER, "params": {"llm_id": "sub", "tools": [ECHO], "cite": True}}
    script = Script(
        [
            {"model": "sub", "last_role": "tool", "reply": "sub speaks", "reasoning": "sub thinks"},
            {"model": "sub", **calls(("echo_0", {"query": "x"}))},
            {"last_role": "tool", "reply": "done"},
            calls(("Sub_Agent_0", {"user_prompt": "look"})),
        ]
    )

    with only_tools(echo_tool(Calls())):
        outcome, ctx = ask(script, streaming_context(), tools=[inner])

    assert ctx.streamed_text == f"{THINK_START}Running the Sub_Agent_0 tool...{THINK_END}done"
    assert isinstance(outcome, Finished)
    assert "thinking" not in outcome.outputs


def test_a_sub_agent_answers_with_its_structured_object():
    schema = {"structured": {"properties": {"a": {"type": "string"}}}}
    helper = {**HELPER, "params": {"llm_id": "sub", "outputs": schema}}
    script = Script(
        [
            {"model": "sub", "reply": '{"a": "é"}'},
            {"last_role": "tool", "reply": "ok"},
            calls(("Sub_Agent_0", {"user_prompt": "do"})),
        ]
    )

    outcome, _ = ask(script, tools=[helper])

    assert texts(script.requests[-1])[-1] == ("tool", '{"a": "é"}')
    assert isinstance(outcome, Finished)
    assert outcome.outputs["use_tools"][0]["results"] == {"a": "é"}


@pytest.mark.parametrize("tools", [[], [ECHO]])
def test_the_error_of_a_sub_agent_is_its_result(tools: list[Any]):
    helper = {**HELPER, "params": {"llm_id": "sub", "tools": tools}}
    script = Script(
        [
            {"model": "sub", "error": "invalid request: bad"},
            {"last_role": "tool", "reply": "recovered"},
            calls(("Sub_Agent_0", {"user_prompt": "do"})),
        ]
    )

    with only_tools(echo_tool(Calls())):
        outcome, _ = ask(script, tools=[helper])

    assert texts(script.requests[-1])[-1] == ("tool", "**ERROR**: INVALID_REQUEST - invalid request: bad")
    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "recovered"


def test_sub_agent_with_an_unknown_model_reports_it():
    helper = {**HELPER, "params": {"llm_id": "gone"}}
    script = Script([{"last_role": "tool", "reply": "ok"}, calls(("Sub_Agent_0", {"user_prompt": "do"}))])

    ask(script, tools=[helper])

    assert texts(script.requests[-1])[-1] == ("tool", 'Model "gone" is not enabled for this tenant.')


# -- streaming --------------------------------------------------------------------------------------------------------


def test_calls_are_announced_as_reasoning_while_the_agent_streams():
    script = Script(
        [
            {"last_role": "tool", "reply": "both done"},
            {"reasoning": "hm", **calls(("echo_0", {"query": "1"}), ("echo_1", {"query": "2"}))},
        ]
    )

    with only_tools(echo_tool(Calls())):
        outcome, ctx = ask(script, streaming_context(), tools=[ECHO, ECHO])

    thoughts = "hmRunning the echo_0 tool...Running the echo_1 tool..."
    assert ctx.streamed_text == f"{THINK_START}{thoughts}{THINK_END}both done"
    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == f"<think>{thoughts}</think>both done"
    assert outcome.outputs["thinking"] == "hm"
    assert [used["name"] for used in outcome.outputs["use_tools"]] == ["echo_0", "echo_1"]


def test_error_is_written_last_and_the_run_continues():
    script = Script([{"reply": "Hel", "error_after": "invalid"}])

    with only_tools(echo_tool(Calls())):
        outcome, ctx = ask(script, streaming_context(), tools=[ECHO])

    error = "**ERROR**: INVALID_REQUEST - invalid"
    assert ctx.text_deltas == ["Hel", error]
    assert outcome == Finished(outputs={"content": error, "_ERROR": error})


def test_default_value_is_written_in_place_of_an_error():
    script = Script([{"error": "invalid request: bad"}])
    policy = {"exception_method": "comment", "exception_default_value": "fallback answer"}

    with only_tools(echo_tool(Calls())):
        outcome, ctx = ask(script, streaming_context(), tools=[ECHO], **policy)
        empty, _ = ask(script, streaming_context(), tools=[ECHO], prompts=" ", **policy)

    assert ctx.streamed_text == "fallback answer"
    assert outcome == empty == Finished(outputs={"content": "fallback answer"})
    assert len(script.requests) == 1


def test_links_to_files_of_tools_follow_the_answer():
    files = [
        {"name": "p.png", "url": "/a/p.png", "mime_type": "image/png"},
        {"name": "d.csv", "url": "/a/d.csv", "mime_type": "text/csv"},
    ]
    tool = echo_tool(Calls(), lambda _: ToolResult({"_ARTIFACTS": files}, "made"))
    rules = [{"last_role": "tool", "reply": "See ![p.png](/a/p.png)"}, calls(("echo_0", {"query": "x"}))]

    with only_tools(tool):
        streamed, ctx = ask(Script(rules), streaming_context(), tools=[ECHO])
        buffered, _ = ask(Script(rules), tools=[ECHO])

    answer = "See ![p.png](/a/p.png)\n\n[Download d.csv](/a/d.csv)"
    assert ctx.streamed_text == RUNNING + answer
    assert isinstance(streamed, Finished)
    assert isinstance(buffered, Finished)
    assert streamed.outputs["content"] == f"<think>Running the echo_0 tool...</think>{answer}"
    assert buffered.outputs["content"] == answer


# -- whole node -------------------------------------------------------------------------------------------------------


def test_failed_request_is_not_repeated_by_the_agent():
    script = Script([{"reply": "**ERROR** z"}])

    with only_tools(echo_tool(Calls())):
        outcome, _ = ask(script, tools=[ECHO], max_retries=3)

    assert outcome == Failed("**ERROR** z", "model_error")
    assert len(script.requests) == 1


def test_only_the_failed_request_is_repeated_and_no_tool_is_called_twice():
    recorded = Calls()
    script = Script(
        [
            {"last_role": "tool", "error": "503 unavailable", "times": 1},
            {"last_role": "tool", "reply": "ok"},
            calls(("echo_0", {"query": "1"}), ("echo_0", {"query": "2"})),
        ]
    )

    with only_tools(echo_tool(recorded)):
        outcome, _ = ask(script, tools=[ECHO], max_retries=1)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "ok"
    assert [call["query"] for call in recorded.arguments] == ["1", "2"]
    assert [role for role, _ in texts(script.requests[-1])] == ["user", "assistant", "tool", "tool"]


def test_default_value_replaces_a_failed_answer():
    script = Script([{"error": "invalid"}])
    policy = {"exception_method": "comment", "exception_default_value": "DEF"}

    with only_tools(echo_tool(Calls())):
        outcome, _ = ask(script, tools=[ECHO], **policy)
        empty, _ = ask(script, tools=[ECHO], prompts=" ", **policy)

    assert outcome == empty == Finished(outputs={"content": "DEF"})


def test_use_tools_output_of_an_earlier_activation_is_cleared():
    ctx = FakeContext(globals={"sys.query": "Q"}, previous={"use_tools": [{"name": "echo_0"}]})

    with only_tools(echo_tool(Calls())):
        outcome, _ = ask(Script([{"reply": "no tool needed"}]), ctx, tools=[ECHO])

    assert outcome == Finished(outputs={"content": "no tool needed", "use_tools": None})
