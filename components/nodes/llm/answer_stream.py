"""An answer on its way to whoever waits for it: aloud, piece by piece, or quietly, as a whole.

LLM and Agent share this. `Aloud` and `Quietly` ask in the same way, so that the tool rounds of an Agent need not know
whether anybody hears them.
"""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, Protocol

from canvas.outcome import Finished
from components.base import Params
from components.context import THINK_END, THINK_START, NodeContext
from components.nodes.llm.model_call import fallback, is_error
from components.text.templates.templates import value_text
from providers.errors import Code
from providers.models.types.chat import (
    CallsDelta,
    ChatModel,
    ChatRequest,
    Completion,
    ErrorDelta,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    Usage,
    UsageDelta,
)


class Listener(Protocol):
    """Who gets what a model says."""

    async def ask(self, call: ChatRequest) -> Completion:
        """Put a question; the answer is passed on as it comes. A failed one has an `error`, and that as its text."""
        ...

    async def retell(self, answer: Completion) -> None:
        """Pass on what the model said in an earlier attempt."""
        ...

    async def say(self, text: str) -> None:
        """Pass on a text that no model gave as an answer of its own."""
        ...

    async def running(self, function: str) -> None:
        """A tool is about to be called."""
        ...


class Quietly:
    """Whole answers that nobody hears."""

    def __init__(self, ctx: NodeContext, model: ChatModel) -> None:
        self._ctx = ctx
        self._model = model
        self._reasoning: list[str] = []

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    async def ask(self, call: ChatRequest) -> Completion:
        answer = await self._model.complete(call)
        self._ctx.spent(answer.usage)
        await self.retell(answer)
        return replace(answer, error=answer.error or _marked(answer.text))

    async def retell(self, answer: Completion) -> None:
        self._reasoning.append(answer.reasoning)

    async def say(self, text: str) -> None:
        pass

    async def running(self, function: str) -> None:
        pass


class Aloud:
    """Answers as the user hears them, and as they will be stored: reasoning inside `<think>..</think>`.

    Reasoning goes on until a text is said, also over several answers. After an error nothing more is said.
    """

    def __init__(self, ctx: NodeContext, model: ChatModel) -> None:
        self._ctx = ctx
        self._model = model
        self._stored: list[str] = []
        self._reasoning: list[str] = []
        self._thinks = False
        self.error = ""

    @property
    def content(self) -> str:
        return "".join(self._stored)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    async def ask(self, call: ChatRequest) -> Completion:
        """Say the whole answer. After an error nothing more is said, but the call is still paid for."""
        said: list[str] = []
        thought: list[str] = []
        calls: tuple[ToolCall, ...] = ()
        usage = Usage()
        error: ErrorDelta | None = None
        stream = self._model.stream(call)
        try:
            async for delta in stream:
                match delta:
                    case TextDelta(text):
                        said.append(text)
                        await self.say(text)
                    case ReasoningDelta(text):
                        thought.append(text)
                        await self._reason(text)
                    case ErrorDelta():
                        error = delta
                        self.error = self.error or str(delta)
                    case UsageDelta(used):
                        usage += used
                        self._ctx.spent(used)
                    case CallsDelta(called):
                        calls = called
        finally:
            if isinstance(stream, AsyncGenerator):  # a listener that fails leaves no open connection behind
                await stream.aclose()
        return Completion(self.error or "".join(said), "".join(thought), calls, usage, error or _marked(self.error))

    async def retell(self, answer: Completion) -> None:
        await self._reason(answer.reasoning)
        await self.say(answer.text)

    async def say(self, text: str) -> None:
        if is_error(text):
            self.error = self.error or text
        if not text or self.error:
            return
        await self._end_thinking()
        self._stored.append(text)
        await self._ctx.say(text)

    async def running(self, function: str) -> None:
        await self._think(f"Running the {function} tool...")

    async def end(self, params: Params) -> Finished:
        """What was said, as an outcome. An error, or the default value in its place, is the last piece."""
        await self._end_thinking()
        if not self.error:
            outputs = {"content": self.content, **unless_empty(self._ctx, "thinking", self.reasoning)}
            return Finished(outputs=outputs)
        default = fallback(params)
        if default is not None:
            await self._ctx.say(value_text(default))
            return Finished(outputs={"content": default})
        await self._ctx.say(self.error)
        return Finished(outputs={"content": self.error, "_ERROR": self.error})

    async def _reason(self, text: str) -> None:
        if text and not self.error:
            self._reasoning.append(text)
        await self._think(text)

    async def _think(self, text: str) -> None:
        if not text or self.error:
            return
        self._stored.append(text if self._thinks else f"<think>{text}")
        await self._ctx.say(text if self._thinks else THINK_START + text)
        self._thinks = True

    async def _end_thinking(self) -> None:
        if self._thinks:
            self._thinks = False
            self._stored.append("</think>")
            await self._ctx.say(THINK_END)


def _marked(text: str) -> ErrorDelta | None:
    """The failure that a text is which the model gave as an answer."""
    return ErrorDelta(Code.GENERIC_ERROR, text) if is_error(text) else None


def unless_empty(ctx: NodeContext, name: str, value: Any) -> dict[str, Any]:
    """An output that is there only where it says something; an earlier pass leaves none behind."""
    if value or ctx.previous_output(name) is not None:
        return {name: value or None}
    return {}
