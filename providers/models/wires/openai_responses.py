"""Reading replies of chat completions, streamed or whole, into deltas. Replies are JSON as the provider sent it.

Fields are read by name and nothing is taken for granted: usage may come in every chunk or in none, tool calls in pieces
or at once, reasoning under two names, and an error as an event in the middle of a stream.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from providers.errors import Code, ProviderError, failure
from providers.models.types.chat import CallsDelta, Delta, ReasoningDelta, TextDelta, ToolCall, Usage, UsageDelta

_CUT_SHORT = "...\nThe answer is truncated by your chosen LLM due to its limitation on context length."
_CUT_SHORT_CHINESE = "······\n由于大模型的上下文窗口大小限制，回答已经被大模型截断。"
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_LATIN = re.compile(r"[A-Za-z]+")

_closing: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references to its tasks


async def deltas_of_stream(stream: Any) -> AsyncGenerator[Delta, None]:
    text = _Text()
    calls = _Calls()
    usage: Usage | None = None
    finish: str | None = None
    async with closed_with_its_task(stream):
        async for chunk in stream:
            if error := field_of(chunk, "error"):
                names = [field_of(error, "code"), field_of(error, "type")]
                raise failure(message_in(error) or "The provider sent an error in place of its answer.", names=names)
            choice = next(iter(field_of(chunk, "choices") or ()), None)
            usage = _usage(field_of(chunk, "usage")) or _usage(field_of(choice, "usage")) or usage
            finish = field_of(choice, "finish_reason") or finish
            message = field_of(choice, "delta")
            for delta in text.of(message):
                yield delta
            if called := field_of(message, "tool_calls"):
                calls.add(called)
    for delta in finish_reason_error("".join(text.answer), calls.all(), finish, has_reasoned=text.has_reasoned):
        yield delta
    if usage is not None:
        yield UsageDelta(usage)


def deltas_of_answer(answer: Any) -> list[Delta]:
    text = _Text()
    calls = _Calls()
    choice = next(iter(field_of(answer, "choices") or ()), None)
    message = field_of(choice, "message")
    if message is None:
        detail = message_in(field_of(answer, "error")) or "The provider's reply holds no answer; is its base URL right?"
        raise failure(detail) if field_of(answer, "error") else ProviderError(Code.MODEL_ERROR, detail)
    deltas = [*text.of(message)]
    calls.add(field_of(message, "tool_calls"))
    finish = field_of(choice, "finish_reason")
    deltas += finish_reason_error("".join(text.answer), calls.all(), finish, has_reasoned=text.has_reasoned)
    usage = _usage(field_of(answer, "usage"))
    return deltas if usage is None else [*deltas, UsageDelta(usage)]


def finish_reason_error(
    answer: str, called: tuple[ToolCall, ...], finish: str | None, *, has_reasoned: bool
) -> list[Delta]:
    """What follows the last piece: a notice if the answer was cut short, the calls. Nothing at all is a failure."""
    if not answer and not called:
        if finish == "content_filter":
            raise ProviderError(Code.CONTENT_FILTERED, "The provider's content filter withheld the answer.")
        if finish is None and not has_reasoned:
            raise ProviderError(Code.SERVER_ERROR, "The provider ended the reply before it began.")
    deltas: list[Delta] = []
    if finish == "length":
        deltas.append(TextDelta(_CUT_SHORT_CHINESE if _is_chinese(answer) else _CUT_SHORT))
    if called:
        deltas.append(CallsDelta(called))
    return deltas


def field_of(value: Any, name: str) -> Any:
    """A field of a JSON object; None if it has none, or is something else."""
    return value.get(name) if isinstance(value, dict) else None


def message_in(body: object) -> str | None:
    """The message in an error body: under `message`, `error` or `detail`, as a text or one level deeper."""
    if isinstance(body, str):
        return body or None
    for name in ("message", "error", "detail"):
        value = field_of(body, name)
        if value:
            return message_in(value) if isinstance(value, str | dict) else json.dumps(value, default=str)
    return None


@asynccontextmanager
async def closed_with_its_task(stream: Any) -> AsyncGenerator[None]:
    """Close a stream at the end of the block or of the task that reads it, whichever comes first.

    A reader that is cancelled between two deltas, busy with the one before, leaves this generator suspended; without
    the task's end as a signal the provider would go on until the garbage collector comes by.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()

    def close(_: Any) -> None:
        closing = loop.create_task(stream.close())
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)

    if task is not None:
        task.add_done_callback(close)
    try:
        yield
    finally:
        if task is not None:
            task.remove_done_callback(close)
        await stream.close()


class _Text:
    """The texts of a reply, and what the answer has been so far."""

    def __init__(self) -> None:
        self.answer: list[str] = []
        self.has_reasoned = False

    def of(self, message: Any) -> list[Delta]:
        deltas: list[Delta] = []
        reasoning = field_of(message, "reasoning_content") or field_of(message, "reasoning")
        if isinstance(reasoning, str) and reasoning:
            self.has_reasoned = True
            deltas.append(ReasoningDelta(reasoning))
        content = field_of(message, "content") or field_of(message, "refusal")
        if isinstance(content, str) and content:
            self.answer.append(content)
            deltas.append(TextDelta(content))
        return deltas


class _Calls:
    """Tool calls put together from their pieces. A piece belongs to the call with its index.

    A piece that brings another id under an index in use begins a new call: some vendors number all calls 0.
    """

    def __init__(self) -> None:
        self._calls: list[dict[str, Any]] = []
        self._at: dict[int, int] = {}

    def add(self, pieces: Any) -> None:
        for position, piece in enumerate(pieces or ()):
            index = field_of(piece, "index")
            call = self._call(index if isinstance(index, int) else position, field_of(piece, "id") or "")
            function = field_of(piece, "function")
            call["name"] = call["name"] or field_of(function, "name") or ""
            arguments = field_of(function, "arguments")
            if arguments is not None:
                call["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)
            if isinstance(extra := field_of(piece, "extra_content"), dict):
                call["extra"] = extra

    def all(self) -> tuple[ToolCall, ...]:
        named = [call for call in self._calls if call["name"]]
        return tuple(
            ToolCall(call["id"] or f"call_{i}", call["name"], call["arguments"], call["extra"])
            for i, call in enumerate(named)
        )

    def _call(self, index: int, call_id: str) -> dict[str, Any]:
        known = self._at.get(index)
        if known is None or (call_id and self._calls[known]["id"] not in ("", call_id)):
            self._at[index] = known = len(self._calls)
            self._calls.append({"id": "", "name": "", "arguments": "", "extra": None})
        call = self._calls[known]
        call["id"] = call["id"] or call_id
        return call


def _usage(told: Any) -> Usage | None:
    """Usage as the provider tells it. A split that does not add up to the total is dropped, the total kept."""
    if not told:
        return None
    prompt, completion, total = (
        value if isinstance(value := field_of(told, name), int) else 0
        for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    if not (prompt or completion or total):
        return None
    if total and prompt + completion != total:
        return Usage(total_tokens=total)
    cached = field_of(field_of(told, "prompt_tokens_details"), "cached_tokens") or field_of(
        told, "prompt_cache_hit_tokens"
    )
    known = cached if isinstance(cached, int) and not isinstance(cached, bool) else 0
    return Usage(prompt, completion, prompt + completion, cached_tokens=min(max(0, known), prompt))


def _is_chinese(text: str) -> bool:
    """Whether a reader of Chinese is meant: ideographs are words, so they are weighed against Latin words."""
    return len(_CHINESE.findall(text)) > len(_LATIN.findall(text))
