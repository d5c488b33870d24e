"""Rounds of an Agent: requests to the model, each followed by the tool calls that the model asked for.

There are two ways, and each class has a method `answer`:

- `ToolRounds`: the model has native function calling. Each round is one request. If the reply contains calls, they are
  recorded and carried out, their results are appended to the messages, and the next round begins. A reply without
  calls is the answer. After the last round, one more request without functions asks for the answer.
- `RoundsInPrompts`: for `tool_mode: "prompt"`. The model first analyses the task. Each round then asks for the next
  calls as a JSON array, carries them out, and asks the model to reflect on the results, until it calls
  `complete_task`. An unreadable reply uses up its round, and the next request tells the model what was wrong. After the
  last round, one more request asks for the answer.

Replies are recorded in the attempt's journal, so the next attempt of the activation continues where this one ended. A
failed request ends the rounds with its error, because the provider layer has already repeated it as often as allowed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from components.context import NodeContext
from components.nodes.agent import prompts
from components.nodes.agent.prompts import COMPLETE, STOP
from components.nodes.agent.tool_calls import ToolCalls, usage_entry
from components.nodes.llm.answer_stream import AnswerListener, BufferedAnswer
from components.text.json_in_text import parse_repaired
from components.text.templates.templates import json_text, value_text
from providers.models.recording.model_calls import journal_place
from providers.models.text.context_window import text_of
from providers.models.text.sanitizer import without_reasoning
from providers.models.types.chat import ChatModel, ChatRequest, Completion, ModelSpec, ToolCall, Usage

PARALLEL_CALLS_IN_PROMPTS = 5  # tool calls of one round that run at the same time with `tool_mode: "prompt"`

_NEEDS_REASONING = ("deepseek", "kimi")  # model names whose vendors refuse calls sent without the reasoning before them
_MAX_HISTORY = 12  # messages of a request; a longer history keeps its first two and its last ten
_FIRST, _LAST = 2, 10

Message = Mapping[str, Any]


# -- native function calling ------------------------------------------------------------------------------------------


class ToolRounds:
    """Rounds of a model with native function calling."""

    def __init__(self, ctx: NodeContext, spec: ModelSpec, calls: ToolCalls, max_rounds: int) -> None:
        self._ctx = ctx
        self._spec = spec
        self._calls = calls
        self._max_rounds = max_rounds

    async def answer(self, question: ChatRequest, listener: AnswerListener, *, is_final: bool = True) -> Completion:
        """Return the answer to the question, or the error of a request. A non-final answer is recorded as well."""
        messages = list(question.messages)
        with_tools = replace(question, tools=self._calls.schemas)
        for number in range(self._max_rounds + 1):
            reply = await self._round(replace(with_tools, messages=messages), listener, number, is_final)
            if not reply.calls or reply.error:
                return reply
            for call in reply.calls:
                await listener.announce_tool(call.name)
            results = await self._calls.run(reply.calls, str(number))
            messages.append(self._assistant_message(reply))
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": used.text}
                for call, used in zip(reply.calls, results, strict=True)
            ]
        messages.append({"role": "user", "content": f"Exceed max rounds: {self._max_rounds}"})
        return await self._round(replace(question, messages=messages), listener, self._max_rounds + 1, is_final)

    async def _round(self, request: ChatRequest, listener: AnswerListener, number: int, is_final: bool) -> Completion:
        key = f"round:{number}"
        reply = await load_reply(self._ctx, key)
        if reply is not None:
            await listener.replay(reply)
            return reply
        with journal_place(key):
            reply = await listener.ask(request)
        if reply.calls or not is_final:
            await record_reply(self._ctx, key, reply)
        return reply

    def _assistant_message(self, reply: Completion) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": reply.text or None,
            "tool_calls": [_call_message(call) for call in reply.calls],
        }
        if reply.reasoning and any(name in self._spec.name.lower() for name in _NEEDS_REASONING):
            message["reasoning_content"] = reply.reasoning
        return message


# -- calls in prompts -------------------------------------------------------------------------------------------------


class RoundsInPrompts:
    """Rounds of a model that writes its calls as JSON text (`tool_mode: "prompt"`)."""

    def __init__(
        self,
        ctx: NodeContext,
        model: ChatModel,
        calls: ToolCalls,
        max_rounds: int,
        guides: Mapping[str, str],
        today: date,
    ) -> None:
        self._ctx = ctx
        self._calls = calls
        self._max_rounds = max_rounds
        self._guides = guides
        self._today = today
        self._quietly = BufferedAnswer(ctx, model)

    async def answer(self, question: ChatRequest, listener: AnswerListener, *, is_final: bool = True) -> Completion:
        """Return the answer to the question, or the error of a request. All replies but a final one are recorded."""
        agent = "\n\n".join(text_of(m.get("content")) for m in question.messages if m.get("role") == "system")
        history: list[Message] = [m for m in question.messages if m.get("role") != "system"]
        goal = next((text_of(m.get("content")) for m in history if m.get("role") == "user"), "")
        analysis = await self._analyse_task(question, agent, history)
        guide = self._guides.get("plan_generation", "")
        system = prompts.next_step(guide, agent, analysis, self._calls.schemas, self._today)
        for number in range(self._max_rounds + 1):
            reply = await self._ask_once(f"round:{number}", self._with(question, system, _cut_history(history)))
            if reply.error:
                return reply
            history.append({"role": "assistant", "content": reply.text})
            calls = _read_calls(reply.text, number)
            if isinstance(calls, str):
                history.append({"role": "user", "content": calls})
                continue
            completed = next((call for call in calls if call.name == COMPLETE), None)
            if completed is not None:
                text = _answer_of(completed)
                await listener.write(text)
                return Completion(text)
            history.append({"role": "user", "content": await self._call_tools(question, calls, listener, number, goal)})
        history.append({"role": "user", "content": prompts.ANSWER_TURN})
        last = self._with(question, agent, _cut_history(history))
        if not is_final:
            return await self._ask_once("answer", last)
        with journal_place("answer"):
            return await listener.ask(last)

    async def _analyse_task(self, question: ChatRequest, agent: str, history: Sequence[Message]) -> str:
        system = prompts.analyse_task(self._guides.get("task_analysis", ""), agent, self._calls.schemas)
        turn: Message = {"role": "user", "content": prompts.ANALYSE_TURN}
        return await self._ask_for_thoughts("analysis", self._with(question, system, [*history, turn]))

    async def _call_tools(
        self, question: ChatRequest, calls: Sequence[ToolCall], listener: AnswerListener, number: int, goal: str
    ) -> str:
        """Carry out a round's calls; return the message that tells the model their results and its reflection."""
        for call in calls:
            await listener.announce_tool(call.name)
        used = await self._calls.run(calls, str(number))
        results = json_text([{"name": one.name, "result": one.result} for one in used])
        system = prompts.reflect(self._guides.get("reflection", ""), goal, results)
        turn: Message = {"role": "user", "content": prompts.REFLECT_TURN}
        reflection = await self._ask_for_thoughts(f"reflection:{number}", self._with(question, system, [turn]))
        return prompts.observation(results, reflection)

    async def _ask_for_thoughts(self, key: str, request: ChatRequest) -> str:
        """Return the text of an optional reply: "" if the request fails."""
        reply = await self._ask_once(key, request)
        return "" if reply.error else without_reasoning(reply.text).strip()

    async def _ask_once(self, key: str, request: ChatRequest) -> Completion:
        """Return the reply that an earlier attempt recorded under the key, else ask the model and record its reply."""
        reply = await load_reply(self._ctx, key)
        if reply is None:
            with journal_place(key):
                reply = await self._quietly.ask(request)
            await record_reply(self._ctx, key, reply)
        return reply

    @staticmethod
    def _with(question: ChatRequest, system: str, history: Sequence[Message]) -> ChatRequest:
        head: list[Message] = [{"role": "system", "content": system}] if system else []
        return replace(question, messages=[*head, *history])


def _read_calls(text: str, number: int) -> list[ToolCall] | str:
    """Return the calls in a reply, or a text for the model that says what is wrong with the reply."""
    found = parse_repaired(
        without_reasoning(text).partition(STOP)[0].rpartition("```json")[2].strip().removesuffix("```")
    )
    items: list[Any] = [found] if isinstance(found, dict) else found if isinstance(found, list) else []
    if not items:
        return f"Tool call error: that was no JSON array of calls. Answer with the array alone, followed by {STOP}."
    calls: list[ToolCall] = []
    for index, item in enumerate(items):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            return 'Tool call error: each call is an object {"name": ..., "arguments": {...}}.'
        arguments = item.get("arguments", {})
        text_of_arguments = arguments if isinstance(arguments, str) else json_text(arguments)
        calls.append(ToolCall(f"step_{number}_{index}", item["name"], text_of_arguments))
    return calls


def _answer_of(completed: ToolCall) -> str:
    arguments = parse_repaired(completed.arguments)
    return value_text(arguments.get("answer")) if isinstance(arguments, dict) else value_text(arguments)


def _cut_history(history: Sequence[Message]) -> Sequence[Message]:
    return history if len(history) <= _MAX_HISTORY else [*history[:_FIRST], *history[-_LAST:]]


# -- recorded replies -------------------------------------------------------------------------------------------------


async def record_reply(ctx: NodeContext, key: str, reply: Completion) -> None:
    """Record a model's reply for later attempts. A reply with an error is not recorded, so that it is asked again."""
    if reply.error:
        return
    entry = {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "calls": [_call_entry(call) for call in reply.calls],
        "usage": usage_entry(reply.usage),
    }
    await ctx.journal_put(key, entry)


async def load_reply(ctx: NodeContext, key: str) -> Completion | None:
    """Return the reply that an earlier attempt recorded, or None. Its usage is added to the usage of this attempt."""
    entry = await ctx.journal_get(key)
    if entry is None:
        return None
    calls: Sequence[Sequence[Any]] = entry["calls"]
    usage = Usage(*entry["usage"])
    ctx.add_usage(usage)
    return Completion(entry["text"], entry["reasoning"], tuple(ToolCall(*call) for call in calls), usage)


def _call_entry(call: ToolCall) -> list[Any]:
    entry = [call.id, call.name, call.arguments]
    return [*entry, call.extra] if call.extra else entry


def _call_message(call: ToolCall) -> dict[str, Any]:
    message = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    return {**message, "extra_content": call.extra} if call.extra else message
