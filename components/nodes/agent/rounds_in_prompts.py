"""The rounds of a model that calls no functions by itself, for an Agent with `tool_mode: "prompt"` (components 3.5).

The task is analysed first. Then each round asks for the next calls as a JSON array, carries them out, and lets the
model reflect on the results, until it calls `complete_task`. A round whose answer cannot be read is spent, and the
model is told why. When the rounds are used up it is asked for its final answer. Whatever was said is recorded, so that
another attempt of the activation goes on where this one ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from components.context import NodeContext
from components.nodes.agent import prompts
from components.nodes.agent.prompts import COMPLETE, STOP
from components.nodes.agent.rounds import recalled, record
from components.nodes.agent.tool_calls import ToolCalls
from components.nodes.llm.answer_stream import Listener, Quietly
from components.nodes.llm.json_in_text import repaired
from components.text.templates.templates import json_text, value_text
from providers.models.text.context_window import text_of
from providers.models.text.sanitizer import without_reasoning
from providers.models.types.chat import ChatModel, ChatRequest, Completion, ToolCall

AT_ONCE = 5
_LONGEST_HISTORY = 12  # messages; beyond, the first two and the last ten stay
_FIRST, _LAST = 2, 10

Message = Mapping[str, Any]


class RoundsInPrompts:
    """Asks a model step by step until it completes the task."""

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
        self._quietly = Quietly(ctx, model)

    async def answer(self, question: ChatRequest, listener: Listener, *, is_final: bool = True) -> Completion:
        """The answer to a question, or the error that stands for it. All but a final answer is recorded."""
        agent = "\n\n".join(text_of(m.get("content")) for m in question.messages if m.get("role") == "system")
        history: list[Message] = [m for m in question.messages if m.get("role") != "system"]
        goal = next((text_of(m.get("content")) for m in history if m.get("role") == "user"), "")
        analysis = await self._analysed(question, agent, history)
        guide = self._guides.get("plan_generation", "")
        system = prompts.next_step(guide, agent, analysis, self._calls.schemas, self._today)
        for number in range(self._max_rounds + 1):
            said = await self._recorded(f"round:{number}", self._with(question, system, _shortened(history)))
            if said.error:
                return said
            history.append({"role": "assistant", "content": said.text})
            wanted = _calls_in(said.text, number)
            if isinstance(wanted, str):
                history.append({"role": "user", "content": wanted})
                continue
            completed = next((call for call in wanted if call.name == COMPLETE), None)
            if completed is not None:
                text = _answer_in(completed)
                await listener.say(text)
                return Completion(text)
            history.append({"role": "user", "content": await self._stepped(question, wanted, listener, number, goal)})
        history.append({"role": "user", "content": prompts.ANSWER_TURN})
        last = self._with(question, agent, _shortened(history))
        return await listener.ask(last) if is_final else await self._recorded("answer", last)

    async def _analysed(self, question: ChatRequest, agent: str, history: Sequence[Message]) -> str:
        system = prompts.analyse_task(self._guides.get("task_analysis", ""), agent, self._calls.schemas)
        turn: Message = {"role": "user", "content": prompts.ANALYSE_TURN}
        return await self._thought("analysis", self._with(question, system, [*history, turn]))

    async def _stepped(
        self, question: ChatRequest, wanted: Sequence[ToolCall], listener: Listener, number: int, goal: str
    ) -> str:
        """Carry out a round's calls; what the model reads of them."""
        for call in wanted:
            await listener.running(call.name)
        used = await self._calls.carry_out(wanted, str(number))
        results = json_text([{"name": one.name, "result": one.result} for one in used])
        system = prompts.reflect(self._guides.get("reflection", ""), goal, results)
        turn: Message = {"role": "user", "content": prompts.REFLECT_TURN}
        reflection = await self._thought(f"reflection:{number}", self._with(question, system, [turn]))
        return prompts.observed(results, reflection)

    async def _thought(self, key: str, call: ChatRequest) -> str:
        """An answer that helps and may be missing: an error is nothing said."""
        said = await self._recorded(key, call)
        return "" if said.error else without_reasoning(said.text).strip()

    async def _recorded(self, key: str, call: ChatRequest) -> Completion:
        said = await recalled(self._ctx, key)
        if said is None:
            said = await self._quietly.ask(call)
            await record(self._ctx, key, said)
        return said

    @staticmethod
    def _with(question: ChatRequest, system: str, history: Sequence[Message]) -> ChatRequest:
        head: list[Message] = [{"role": "system", "content": system}] if system else []
        return replace(question, messages=[*head, *history])


def _calls_in(text: str, number: int) -> list[ToolCall] | str:
    """The calls that an answer asks for, or what is wrong with it, to be told to the model."""
    found = repaired(without_reasoning(text).partition(STOP)[0].rpartition("```json")[2].strip().removesuffix("```"))
    listed: list[Any] = [found] if isinstance(found, dict) else found if isinstance(found, list) else []
    if not listed:
        return f"Tool call error: that was no JSON array of calls. Answer with the array alone, followed by {STOP}."
    calls: list[ToolCall] = []
    for index, item in enumerate(listed):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            return 'Tool call error: each call is an object {"name": ..., "arguments": {...}}.'
        arguments = item.get("arguments", {})
        text_of_arguments = arguments if isinstance(arguments, str) else json_text(arguments)
        calls.append(ToolCall(f"step_{number}_{index}", item["name"], text_of_arguments))
    return calls


def _answer_in(completed: ToolCall) -> str:
    arguments = repaired(completed.arguments)
    return value_text(arguments.get("answer")) if isinstance(arguments, dict) else value_text(arguments)


def _shortened(history: Sequence[Message]) -> Sequence[Message]:
    return history if len(history) <= _LONGEST_HISTORY else [*history[:_FIRST], *history[-_LAST:]]
