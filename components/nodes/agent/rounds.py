"""The rounds of a model that calls functions by itself (tools 10.6).

Each round is one request. A round with calls is recorded and its calls are carried out, their results join the
messages, and the model is asked again; a round without calls is the answer. When the rounds are used up, one last
request without any functions asks for it. A failed request ends everything with its error, as the provider layer has
repeated that one request as often as it may.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from components.context import NodeContext
from components.nodes.agent.tool_calls import ToolCalls, figures
from components.nodes.llm.answer_stream import Listener
from providers.models.types.chat import ChatRequest, Completion, ModelSpec, ToolCall, Usage

_THINKING_IS_ASKED_BACK = ("deepseek", "kimi")  # vendors that refuse calls without the reasoning that led to them


class ToolRounds:
    """Asks a model until it answers."""

    def __init__(self, ctx: NodeContext, spec: ModelSpec, calls: ToolCalls, max_rounds: int) -> None:
        self._ctx = ctx
        self._spec = spec
        self._calls = calls
        self._max_rounds = max_rounds

    async def answer(self, question: ChatRequest, listener: Listener, *, is_final: bool = True) -> Completion:
        """The answer to a question, or the error that stands for it. One that is not final is recorded as well."""
        messages = list(question.messages)
        offered = replace(question, tools=self._calls.schemas)
        for number in range(self._max_rounds + 1):
            said = await self._round(replace(offered, messages=messages), listener, number, is_final)
            if not said.calls or said.error:
                return said
            for call in said.calls:
                await listener.running(call.name)
            results = await self._calls.carry_out(said.calls, str(number))
            messages.append(self._called(said))
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": used.text}
                for call, used in zip(said.calls, results, strict=True)
            ]
        messages.append({"role": "user", "content": f"Exceed max rounds: {self._max_rounds}"})
        return await self._round(replace(question, messages=messages), listener, self._max_rounds + 1, is_final)

    async def _round(self, call: ChatRequest, listener: Listener, number: int, is_final: bool) -> Completion:
        key = f"round:{number}"
        said = await recalled(self._ctx, key)
        if said is not None:
            await listener.retell(said)
            return said
        said = await listener.ask(call)
        if said.calls or not is_final:
            await record(self._ctx, key, said)
        return said

    def _called(self, said: Completion) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": said.text or None,
            "tool_calls": [_as_sent(call) for call in said.calls],
        }
        if said.reasoning and any(name in self._spec.name.lower() for name in _THINKING_IS_ASKED_BACK):
            message["reasoning_content"] = said.reasoning
        return message


async def record(ctx: NodeContext, key: str, said: Completion) -> None:
    """Record what a model said. An error is nothing that another attempt should go on from."""
    if said.error:
        return
    kept = {
        "text": said.text,
        "reasoning": said.reasoning,
        "calls": [_as_recorded(call) for call in said.calls],
        "usage": figures(said.usage),
    }
    await ctx.record(key, kept)


async def recalled(ctx: NodeContext, key: str) -> Completion | None:
    """What a model said in an earlier attempt; what that cost counts in this one, which alone reports."""
    kept = await ctx.recall(key)
    if kept is None:
        return None
    calls: Sequence[Sequence[Any]] = kept["calls"]
    usage = Usage(*kept["usage"])
    ctx.spent(usage)
    return Completion(kept["text"], kept["reasoning"], tuple(ToolCall(*call) for call in calls), usage)


def _as_recorded(call: ToolCall) -> list[Any]:
    kept = [call.id, call.name, call.arguments]
    return [*kept, call.extra] if call.extra else kept


def _as_sent(call: ToolCall) -> dict[str, Any]:
    sent = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    return {**sent, "extra_content": call.extra} if call.extra else sent
