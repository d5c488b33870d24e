import asyncio
from typing import Any

import pytest

from canvas.outcome import Failed, Finished
from components.nodes.agent.agent import agent
from components.nodes.llm.prompts import citation_guide
from components.tools.retrieval import RETRIEVAL
from providers.models.chat.scripted import Script
from tests.fakes import FakeContext
from tests.unit.components.nodes.agent.agents import (
    ECHO,
    HELPER,
    Calls,
    ask,
    calls,
    echo_tool,
    only_tools,
    scripted,
    texts,
)

SEARCH = {"component_name": "Search", "name": "Search", "params": {}}
CHUNK = {"content": "Tea is a drink.", "document_name": "tea.txt", "url": "https://example.com/t"}
SCHEMA = {"content": {}, "structured": {"properties": {"a": {"type": "string"}}, "value": {"a": "of last time"}}}


def conversation(turns: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in range(1, turns + 1):
        messages += [{"role": "user", "content": f"u{turn}"}, {"role": "assistant", "content": f"a{turn}"}]
    return [*messages, {"role": "user", "content": "Q"}]


def streaming_context(turns: int = 0, sources: bool = False, **more: Any) -> FakeContext:
    store = {"chunks": {"417": CHUNK} if sources else {}, "doc_aggs": {}}
    return FakeContext(
        globals={"sys.query": "Q", **more}, is_streaming=True, entries=conversation(turns), reference_store=store
    )


# -- completed question -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("turns", "is_completed"), [(0, False), (1, False), (2, True), (3, True)])
def test_question_in_a_conversation_is_completed_in_a_first_request(turns: int, is_completed: bool):
    script = Script([{"user": "Output: ", "reply": "whole question"}, {"reply": "a"}])
    ctx = streaming_context(turns, **{"sys.date": "2026-03-01 10:00:00"})

    with only_tools(echo_tool(Calls())):
        ask(script, ctx, tools=[ECHO], sys_prompt="S", temperature=0.5, temperatureEnabled=True)

    *before, last = script.requests
    assert texts(last)[-1] == ("user", "whole question" if is_completed else "Q")
    assert len(last.messages) == 2 * turns + 2
    assert len(before) == len(ctx.traces) == int(is_completed)
    for request in before:
        (_, system), question = texts(request)
        assert question == ("user", "Output: ")
        assert f"USER: u{turns}\nASSISTANT: a{turns}\nUSER: Q" in system
        assert "2026-02-28" in system
        assert request.params == {}
        assert request.tools == ("echo_0",)


@pytest.mark.parametrize("answer", [{"error": "invalid"}, {"reply": " "}, {"reply": "Output:"}, calls(("echo_0", {}))])
def test_question_is_sent_unchanged_when_its_completion_fails(answer: dict[str, Any]):
    script = Script([{"user": "Output: ", **answer}, {"reply": "a"}])
    recorded = Calls()

    with only_tools(echo_tool(recorded)):
        outcome, _ = ask(script, streaming_context(2), tools=[ECHO])

    assert outcome == Finished(outputs={"content": "a"})
    assert texts(script.requests[-1])[-1] == ("user", "Q")
    assert recorded.arguments == []


def test_agent_that_does_not_stream_neither_completes_questions_nor_cites():
    script = Script([{"reply": "a"}])
    ctx = streaming_context(3, sources=True)
    ctx.is_streaming = False

    with only_tools(echo_tool(Calls())):
        ask(script, ctx, tools=[ECHO], sys_prompt="S")

    (only,) = script.requests
    assert texts(only)[0] == ("system", "S")


# -- citations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "sources", "cite", "is_guided"),
    [
        ("Echo", False, True, False),
        ("Echo", True, True, True),
        ("Echo", True, False, False),
        ("Search", False, True, True),
        ("Search", False, False, False),
    ],
)
def test_citation_guide_is_added_when_sources_exist_or_a_tool_may_bring_them(
    tool: str, sources: bool, cite: bool, is_guided: bool
):
    script = Script([{"reply": "a"}])

    with only_tools(echo_tool(Calls(), name=tool, brings_sources=tool == "Search")):
        ask(script, streaming_context(sources=sources), tools=[{"component_name": tool}], sys_prompt="S", cite=cite)

    expected = f"S\n\n{citation_guide()}" if is_guided else "S"
    assert texts(script.requests[0])[0] == ("system", expected)


@pytest.mark.parametrize(
    ("params", "is_guided"),
    [
        ({"kb_ids": []}, False),
        ({"kb_ids": ["k"]}, True),
        ({"dataset_ids": ["k"]}, True),
        ({"dataset_ids": ["k"], "retrieval_from": "memory"}, False),
    ],
)
def test_a_retrieval_brings_sources_only_from_datasets(params: dict[str, Any], is_guided: bool):
    script = Script([{"reply": "a"}])

    with only_tools(RETRIEVAL):
        ask(script, streaming_context(), tools=[{"component_name": "Retrieval", "params": params}], sys_prompt="S")

    assert (texts(script.requests[0])[0] == ("system", "S")) is not is_guided


def test_citation_guide_of_the_author_replaces_the_built_in_one():
    script = Script([{"reply": "a"}])
    system = "S<CITATION_GUIDELINES>cite like me</CITATION_GUIDELINES>"

    with only_tools(echo_tool(Calls())):
        ask(script, streaming_context(sources=True), tools=[ECHO], sys_prompt=system)

    assert texts(script.requests[0])[0] == ("system", f"S\n\n{citation_guide('cite like me')}")


def test_second_request_adds_the_citations_after_a_long_conversation():
    script = Script(
        [
            {"user": "Output: ", "reply": "whole question"},
            {"user": "whole question", "last_role": "tool", "reply": "Tea is a drink."},
            {"user": "whole question", **calls(("echo_0", {"query": "tea"}))},
            {"user": {"equals": "Tea is a drink."}, "reply": "Tea is a drink [ID:417]."},
        ]
    )

    with only_tools(echo_tool(Calls())):
        outcome, ctx = ask(script, streaming_context(3, sources=True), tools=[ECHO], sys_prompt="S")

    assert ctx.streamed_text == "Tea is a drink [ID:417]."
    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "Tea is a drink [ID:417]."
    system, question = texts(script.requests[-1])
    assert question == ("user", "Tea is a drink.")
    assert citation_guide() in system[1]
    assert "ID: 417\n├── Title: tea.txt\n├── URL: https://example.com/t\n└── Content:\nTea is a drink." in system[1]
    assert texts(script.requests[1])[0] == ("system", "S")


def test_answer_without_sources_is_written_unchanged_after_a_long_conversation():
    script = Script([{"user": "Output: ", "reply": "whole"}, {"reply": "No idea."}])

    with only_tools(echo_tool(Calls(), name="Search", brings_sources=True)):
        outcome, ctx = ask(script, streaming_context(3), tools=[SEARCH])

    assert ctx.text_deltas == ["No idea."]
    assert outcome == Finished(outputs={"content": "No idea."})
    assert len(script.requests) == 2


def test_error_of_an_answer_before_its_citations_is_written():
    script = Script([{"user": "Output: ", "reply": "whole"}, {"error": "invalid"}])

    with only_tools(echo_tool(Calls())):
        outcome, ctx = ask(script, streaming_context(3, sources=True), tools=[ECHO])

    assert ctx.text_deltas == ["**ERROR**: INVALID_REQUEST - invalid"]
    assert isinstance(outcome, Finished)
    assert outcome.outputs["_ERROR"] == ctx.streamed_text


# -- structured answer ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "structured",
    [
        SCHEMA["structured"],
        {"schema": {"properties": {"a": {"type": "string"}}}},
        {"structured": {"properties": {"a": {"type": "string"}}}},
    ],
)
def test_structured_answer_is_parsed_and_content_stays_unset(structured: dict[str, Any]):
    script = Script([{"last_role": "tool", "reply": '```json\n{"a": "1"}\n```'}, calls(("echo_0", {"query": "x"}))])

    with only_tools(echo_tool(Calls())):
        outcome, _ = ask(script, tools=[ECHO], sys_prompt="You lead.", outputs={"structured": structured})

    assert isinstance(outcome, Finished)
    assert outcome.outputs["structured"] == {"a": "1"}
    assert "content" not in outcome.outputs
    system = texts(script.requests[0])[0][1]
    assert system.startswith("You lead.\n\n")
    assert "of last time" not in system


def test_answer_that_is_not_json_is_rewritten():
    script = Script([{"user": "in words", "reply": '{"a": "1"}'}, {"reply": "in words"}])

    with only_tools(echo_tool(Calls())):
        outcome, _ = ask(script, tools=[ECHO], outputs=SCHEMA)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["structured"] == {"a": "1"}
    assert len(script.requests) == 2
    assert "JSON schema:" in texts(script.requests[1])[0][1]


def test_answer_that_is_never_json_fails_the_node_despite_a_default_value():
    script = Script([{"user": "in words", "error": "invalid"}, {"reply": "in words"}])
    policy = {"exception_method": "comment", "exception_default_value": "DEF"}

    with only_tools(echo_tool(Calls())):
        outcome, _ = ask(script, tools=[ECHO], outputs=SCHEMA, max_retries=2, **policy)

    assert isinstance(outcome, Failed)
    assert "cannot be parsed as JSON" in outcome.error
    assert len(script.requests) == 1 + 3


def test_structured_agent_never_streams():
    script = Script([{"reply": '{"a": "1"}'}])

    with only_tools(echo_tool(Calls())):
        outcome, ctx = ask(script, streaming_context(), tools=[ECHO], outputs=SCHEMA)

    assert outcome == Finished(outputs={"structured": {"a": "1"}})
    assert ctx.streamed_text == ""


# -- second attempt ---------------------------------------------------------------------------------------------------


class Crash(Exception):
    """The worker has died."""


class Crashing(FakeContext):
    """Raises Crash after `puts_left` journal entries."""

    puts_left = -1

    async def journal_put(self, key: str, value: Any) -> bool:
        assert key not in self.journal
        is_new = await super().journal_put(key, value)
        self.puts_left -= 1
        if self.puts_left == 0:
            raise Crash
        return is_new


RULES = [
    {"user": "Output: ", "reply": "whole question"},
    {"model": "sub", "last_role": "tool", "reply": "sub done"},
    {"model": "sub", **calls(("echo_0", {"query": "inner"}))},
    {"last": "sub done", "reply": "Final."},
    {"last": "echo of one", "reasoning": "so ", **calls(("Sub_Agent_1", {"user_prompt": "look"}))},
    {"user": "whole question", **calls(("echo_0", {"query": "one"}))},
    {"user": {"equals": "Final."}, "reply": "Final [ID:417]."},
]


def attempt(
    script: Script, recorded: Calls, journal: dict[str, Any], puts_left: int, turns: int
) -> tuple[Any, Crashing]:
    ctx = Crashing(globals={"sys.query": "Q"}, is_streaming=True, entries=conversation(turns), journal=journal)
    ctx.reference_store["chunks"]["417"] = CHUNK
    ctx.name, ctx.puts_left = "Lead", puts_left
    ctx.models = {"m": scripted(script), "sub": scripted(script, "sub")}
    helper = {**HELPER, "params": {"llm_id": "sub", "tools": [ECHO]}}
    tool = echo_tool(recorded)
    with only_tools(tool):
        params = agent.params.model_validate({"llm_id": "m", "tools": [ECHO, helper], "max_rounds": 5})
        outcome: Any = agent.run(params, ctx)
        return asyncio.run(outcome), ctx


@pytest.mark.parametrize("turns", [2, 3])
def test_second_attempt_repeats_no_request_or_tool_call_after_any_crash(turns: int):
    script, recorded = Script(RULES), Calls()
    whole, undisturbed = attempt(script, recorded, {}, -1, turns)
    request_count = len(script.requests)
    steps = len(undisturbed.journal)
    # the completed question, 2 rounds, 2 calls, 2 entries of the sub-agent, the answer to cite
    assert steps == 1 + 2 + 2 + 2 + (turns == 3)

    for puts_left in range(1, steps + 1):
        script, recorded, journal = Script(RULES), Calls(), dict[str, Any]()
        with pytest.raises(Crash):
            attempt(script, recorded, journal, puts_left, turns)
        outcome, ctx = attempt(script, recorded, journal, -1, turns)

        assert outcome == whole
        assert ctx.streamed_text == undisturbed.streamed_text
        assert ctx.usage == undisturbed.usage
        assert len(script.requests) == request_count
        assert [call["query"] for call in recorded.arguments] == ["one", "inner"]
