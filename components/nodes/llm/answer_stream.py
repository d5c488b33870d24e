"""Two ways to ask a model: `StreamedAnswer` streams the answer to the user, `BufferedAnswer` returns it as a whole.

LLM and Agent share them. Both have the interface `AnswerListener`, so the tool rounds of an Agent do not depend on
whether the answer is streamed.
"""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, Protocol

from canvas.outcome import Finished
from components.base import Params
from components.context import THINK_END, THINK_START, NodeContext
from components.nodes.llm.model_call import default_answer, is_error
from components.text.templates.templates import value_text
from providers.errors import ErrorCode
from providers.models.types.chat import (
    CallsDelta,
    ChatModel,
    ChatRequest,
    Completion,
    ContentDelta,
    ErrorDelta,
    ReasoningDelta,
    ToolCall,
    Usage,
    UsageDelta,
)


class AnswerListener(Protocol):
    """The receiver of a model's answers."""

    async def ask(self, call: ChatRequest) -> Completion:
        """Send a request and pass the answer on as it arrives. A failed answer has an `error`, which is its text."""
        ...

    async def replay(self, answer: Completion) -> None:
        """Pass on an answer that an earlier attempt recorded."""
        ...

    async def write(self, text: str) -> None:
        """Pass on a text that is not itself a model's answer."""
        ...

    async def announce_tool(self, function: str) -> None:
        """Report that a tool is about to be called."""
        ...


class BufferedAnswer:
    """Answers as a whole, which are not streamed."""

    def __init__(self, ctx: NodeContext, model: ChatModel) -> None:
        self._ctx = ctx
        self._model = model
        self._reasoning: list[str] = []

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    async def ask(self, call: ChatRequest) -> Completion:
        answer = await self._model.complete(call)
        self._ctx.add_usage(answer.usage)
        await self.replay(answer)
        return replace(answer, error=answer.error or _find_error(answer.text))

    async def replay(self, answer: Completion) -> None:
        self._reasoning.append(answer.reasoning)

    async def write(self, text: str) -> None:
        pass

    async def announce_tool(self, function: str) -> None:
        pass


class StreamedAnswer:
    """Answers as they are streamed to the user, and as they are stored: with reasoning inside `<think>..</think>`.

    Reasoning continues until a text is written, also across several answers. After an error nothing more is written.
    """

    def __init__(self, ctx: NodeContext, model: ChatModel) -> None:
        self._ctx = ctx
        self._model = model
        self._stored: list[str] = []
        self._reasoning: list[str] = []
        self._is_thinking = False
        self.error = ""

    @property
    def content(self) -> str:
        return "".join(self._stored)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    async def ask(self, call: ChatRequest) -> Completion:
        """Stream an answer to its end. After an error nothing more is written, but the usage still counts."""
        texts: list[str] = []
        thoughts: list[str] = []
        calls: tuple[ToolCall, ...] = ()
        usage = Usage()
        error: ErrorDelta | None = None
        stream = self._model.stream(call)
        try:
            async for delta in stream:
                match delta:
                    case ContentDelta(text):
                        texts.append(text)
                        await self.write(text)
                    case ReasoningDelta(text):
                        thoughts.append(text)
                        await self._write_reasoning(text)
                    case ErrorDelta():
                        error = delta
                        self.error = self.error or str(delta)
                    case UsageDelta(used):
                        usage += used
                        self._ctx.add_usage(used)
                    case CallsDelta(new_calls):
                        calls = new_calls
        finally:
            if isinstance(stream, AsyncGenerator):  # close the connection also if writing fails
                await stream.aclose()
        return Completion(
            self.error or "".join(texts), "".join(thoughts), calls, usage, error or _find_error(self.error)
        )

    async def replay(self, answer: Completion) -> None:
        await self._write_reasoning(answer.reasoning)
        await self.write(answer.text)

    async def write(self, text: str) -> None:
        if is_error(text):
            self.error = self.error or text
        if not text or self.error:
            return
        await self._end_thinking()
        self._stored.append(text)
        await self._ctx.write(text)

    async def announce_tool(self, function: str) -> None:
        await self._write_thought(f"Running the {function} tool...")

    async def end(self, params: Params) -> Finished:
        """Return what was written, as an outcome. An error, or the default value in its place, is written last."""
        await self._end_thinking()
        if not self.error:
            outputs = {"content": self.content, **optional_output(self._ctx, "thinking", self.reasoning)}
            return Finished(outputs=outputs)
        default = default_answer(params)
        if default is not None:
            await self._ctx.write(value_text(default))
            return Finished(outputs={"content": default})
        await self._ctx.write(self.error)
        return Finished(outputs={"content": self.error, "_ERROR": self.error})

    async def _write_reasoning(self, text: str) -> None:
        if text and not self.error:
            self._reasoning.append(text)
        await self._write_thought(text)

    async def _write_thought(self, text: str) -> None:
        if not text or self.error:
            return
        self._stored.append(text if self._is_thinking else f"<think>{text}")
        await self._ctx.write(text if self._is_thinking else THINK_START + text)
        self._is_thinking = True

    async def _end_thinking(self) -> None:
        if self._is_thinking:
            self._is_thinking = False
            self._stored.append("</think>")
            await self._ctx.write(THINK_END)


def _find_error(text: str) -> ErrorDelta | None:
    """Return the error that an answer's text carries the mark of, or None."""
    return ErrorDelta(ErrorCode.GENERIC_ERROR, text) if is_error(text) else None


def optional_output(ctx: NodeContext, name: str, value: Any) -> dict[str, Any]:
    """Return the output if it is not empty; return null for it if only an earlier activation has set it."""
    if value or ctx.previous_output(name) is not None:
        return {name: value or None}
    return {}
