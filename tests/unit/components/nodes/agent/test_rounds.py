import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from components.nodes.agent.rounds import ToolRounds
from components.nodes.agent.tool_calls import ToolCalls
from components.nodes.agent.tool_set import ToolEntry, index_by_name, tool_function
from components.nodes.llm.answer_stream import BufferedAnswer, StreamedAnswer
from providers.models.chat.retrying_model import RetryingModel
from providers.models.chat.scripted import Script
from providers.models.types.chat import CallsDelta, ChatRequest, Completion, ContentDelta, Delta, ToolCall, Wire
from tests.fakes import FakeContext
from tests.unit.components.nodes.agent.agents import Calls, EchoParams, calls, echo_tool, scripted, texts

AGAIN = calls(("echo_0", {"query": "again"}))


class SigningWire:
    """Calls a function once with extra content, and then answers."""

    def __init__(self, extra: dict[str, Any]) -> None:
        self._extra = extra
        self.requests: list[ChatRequest] = []

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        if request.messages[-1]["role"] == "tool":
            yield ContentDelta("done")
        else:
            yield CallsDelta((ToolCall("c1", "echo_0", '{"query": "again"}', self._extra),))


def run_rounds(
    script: Script,
    ctx: FakeContext | None = None,
    max_rounds: int = 5,
    model: str = "m",
    is_streaming: bool = False,
    wire: Wire | None = None,
) -> Completion:
    ctx = ctx or FakeContext()

    async def answer_question() -> Completion:
        function = tool_function(ToolEntry("Echo", "Echo", EchoParams(), echo_tool(Calls())), 0)
        end = asyncio.get_running_loop().time() + 60
        chat = scripted(script, model)
        chat = RetryingModel(chat.spec, wire) if wire else chat
        rounds = ToolRounds(ctx, chat.spec, ToolCalls(ctx, index_by_name([function]), end), max_rounds)
        question = ChatRequest([{"role": "user", "content": "Q"}])
        return await rounds.answer(question, StreamedAnswer(ctx, chat) if is_streaming else BufferedAnswer(ctx, chat))

    return asyncio.run(answer_question())


@pytest.mark.parametrize("max_rounds", [0, 1, 3])
def test_last_request_after_the_maximum_of_rounds_offers_no_tools(max_rounds: int):
    script = Script([{"last_role": "user", "user": "Exceed max rounds", "reply": "gave up"}, AGAIN])

    answer = run_rounds(script, max_rounds=max_rounds)

    assert answer.text == "gave up"
    *rounds, closing = script.requests
    assert len(rounds) == max_rounds + 1
    assert all(request.tools == ("echo_0",) for request in rounds)
    assert closing.tools == ()
    assert texts(closing)[-1] == ("user", f"Exceed max rounds: {max_rounds}")


def test_round_without_calls_is_the_answer_even_if_empty():
    script = Script([{"last_role": "tool", "reply": ""}, AGAIN])

    assert run_rounds(script).text == ""
    assert len(script.requests) == 2


def test_an_error_ends_the_rounds_and_is_not_recorded():
    ctx = FakeContext()

    answer = run_rounds(Script([{"error": "invalid"}]), ctx)

    assert answer.error is not None
    assert answer.text == "**ERROR**: INVALID_REQUEST - invalid"
    assert ctx.journal == {}


def test_only_rounds_with_calls_are_recorded():
    ctx = FakeContext()

    run_rounds(Script([{"last_role": "tool", "reply": "done"}, {"reply": "let me see", **AGAIN}]), ctx)

    assert list(ctx.journal) == ["round:0", "call:0:0"]


def test_text_beside_calls_is_streamed_and_sent_back_to_the_model():
    script = Script([{"last_role": "tool", "reply": "done"}, {"reply": "let me see ", **AGAIN}])
    ctx = FakeContext()

    run_rounds(script, ctx, is_streaming=True)

    assert ctx.streamed_text.startswith("let me see ")
    assert ctx.streamed_text.endswith("done")
    assert texts(script.requests[1])[1] == ("assistant", "let me see ")


@pytest.mark.parametrize(("model", "is_sent_back"), [("deepseek-v4@DeepSeek", True), ("gpt-5@OpenAI", False)])
def test_reasoning_is_sent_back_to_vendors_that_require_it(model: str, is_sent_back: bool):
    script = Script([{"last_role": "tool", "reply": "done"}, {"reasoning": "because", **AGAIN}])

    run_rounds(script, model=model)

    message: Any = script.requests[1].messages[1]
    assert message.get("reasoning_content") == ("because" if is_sent_back else None)


def test_extra_content_of_a_call_is_sent_back_in_every_attempt():
    extra = {"google": {"thought_signature": "sig"}}
    ctx = FakeContext()

    first, again = SigningWire(extra), SigningWire(extra)
    for wire in (first, again):
        run_rounds(Script([]), ctx, wire=wire)

    assert len(first.requests) == 2
    assert [len(request.messages) for request in again.requests] == [3]  # the first round is in the journal
    for request in (first.requests[1], again.requests[0]):
        (call,) = request.messages[1]["tool_calls"]
        assert call["extra_content"] == extra
