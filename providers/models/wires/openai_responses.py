"""Converts replies of chat completions, streamed or whole, to deltas. Replies are JSON as the provider sent it.

All fields are optional: usage may come in every chunk or in none, tool calls in parts or at once, reasoning under two
names, and an error as an event in the middle of a stream.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from providers.errors import ErrorCode, ProviderError, provider_error
from providers.models.types.chat import CallsDelta, ContentDelta, Delta, ReasoningDelta, ToolCall, Usage, UsageDelta

NO_ANSWER = "The provider's reply contains no answer. Check the base URL."

_TRUNCATED = "...\nThe answer is truncated by your chosen LLM due to its limitation on context length."
_TRUNCATED_CHINESE = "······\n由于大模型的上下文窗口大小限制，回答已经被大模型截断。"
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_LATIN = re.compile(r"[A-Za-z]+")

_closing: set[asyncio.Task[None]] = set()  # the event loop itself has only weak references to its tasks


async def deltas_of_stream(stream: Any) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of a streamed reply. Raises ProviderError."""
    text = _TextReader()
    calls = _CallAssembler()
    usage: Usage | None = None
    finish: str | None = None
    async with close_with_task(stream):
        async for chunk in stream:
            if error := field_of(chunk, "error"):
                names = [field_of(error, "code"), field_of(error, "type")]
                raise provider_error(
                    message_in(error) or "The provider sent an error instead of an answer.", names=names
                )
            choice = next(iter(field_of(chunk, "choices") or ()), None)
            usage = _usage(field_of(chunk, "usage")) or _usage(field_of(choice, "usage")) or usage
            finish = field_of(choice, "finish_reason") or finish
            message = field_of(choice, "delta")
            for delta in text.deltas_of(message):
                yield delta
            if fragments := field_of(message, "tool_calls"):
                calls.add(fragments)
    for delta in final_deltas("".join(text.answer), calls.all(), finish, has_reasoned=text.has_reasoned):
        yield delta
    if usage is not None:
        yield UsageDelta(usage)


def deltas_of_answer(answer: Any) -> list[Delta]:
    """Return the deltas of a whole reply. Raises ProviderError."""
    text = _TextReader()
    calls = _CallAssembler()
    choice = next(iter(field_of(answer, "choices") or ()), None)
    message = field_of(choice, "message")
    if message is None:
        detail = message_in(field_of(answer, "error")) or NO_ANSWER
        raise provider_error(detail) if field_of(answer, "error") else ProviderError(ErrorCode.MODEL_ERROR, detail)
    deltas = [*text.deltas_of(message)]
    calls.add(field_of(message, "tool_calls"))
    finish = field_of(choice, "finish_reason")
    deltas += final_deltas("".join(text.answer), calls.all(), finish, has_reasoned=text.has_reasoned)
    usage = _usage(field_of(answer, "usage"))
    return deltas if usage is None else [*deltas, UsageDelta(usage)]


def final_deltas(answer: str, calls: tuple[ToolCall, ...], finish: str | None, *, has_reasoned: bool) -> list[Delta]:
    """Return the deltas after the last text: a notice if the answer was truncated, and the tool calls.

    Raises ProviderError if the reply has neither an answer nor calls.
    """
    if not answer and not calls:
        if finish == "content_filter":
            raise ProviderError(ErrorCode.CONTENT_FILTERED, "The provider's content filter withheld the answer.")
        if finish is None and not has_reasoned:
            raise ProviderError(ErrorCode.SERVER_ERROR, "The provider sent an empty reply.")
    deltas: list[Delta] = []
    if finish == "length":
        deltas.append(ContentDelta(_TRUNCATED_CHINESE if _is_chinese(answer) else _TRUNCATED))
    if calls:
        deltas.append(CallsDelta(calls))
    return deltas


def field_of(value: Any, name: str) -> Any:
    """Return a field of a JSON object; None if the field is missing or the value is not an object."""
    return value.get(name) if isinstance(value, dict) else None


def message_in(body: object) -> str | None:
    """Return the message of an error body: in `message`, `error` or `detail`, as a text or one level deeper."""
    if isinstance(body, str):
        return body or None
    for name in ("message", "error", "detail"):
        value = field_of(body, name)
        if value:
            return message_in(value) if isinstance(value, str | dict) else json.dumps(value, default=str)
    return None


@asynccontextmanager
async def close_with_task(stream: Any) -> AsyncGenerator[None]:
    """Close a stream at the end of the block or of the task that reads it, whichever comes first.

    A reader that is cancelled while it processes a delta leaves this generator suspended. Without the callback at the
    end of the task the provider would continue until the garbage collector runs.
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


class _TextReader:
    """Extracts the texts of a reply, and collects the answer."""

    def __init__(self) -> None:
        self.answer: list[str] = []
        self.has_reasoned = False

    def deltas_of(self, message: Any) -> list[Delta]:
        deltas: list[Delta] = []
        reasoning = field_of(message, "reasoning_content") or field_of(message, "reasoning")
        if isinstance(reasoning, str) and reasoning:
            self.has_reasoned = True
            deltas.append(ReasoningDelta(reasoning))
        content = field_of(message, "content") or field_of(message, "refusal")
        if isinstance(content, str) and content:
            self.answer.append(content)
            deltas.append(ContentDelta(content))
        return deltas


class _CallAssembler:
    """Assembles tool calls from fragments. A fragment belongs to the call with its index.

    A fragment with another id under a used index starts a new call, because some vendors give all calls the index 0.
    """

    def __init__(self) -> None:
        self._calls: list[dict[str, Any]] = []
        self._position_by_index: dict[int, int] = {}

    def add(self, fragments: Any) -> None:
        for position, fragment in enumerate(fragments or ()):
            index = field_of(fragment, "index")
            call = self._call(index if isinstance(index, int) else position, field_of(fragment, "id") or "")
            function = field_of(fragment, "function")
            call["name"] = call["name"] or field_of(function, "name") or ""
            arguments = field_of(function, "arguments")
            if arguments is not None:
                call["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)
            if isinstance(extra := field_of(fragment, "extra_content"), dict):
                call["extra"] = extra

    def all(self) -> tuple[ToolCall, ...]:
        named = [call for call in self._calls if call["name"]]
        return tuple(
            ToolCall(call["id"] or f"call_{i}", call["name"], call["arguments"], call["extra"])
            for i, call in enumerate(named)
        )

    def _call(self, index: int, call_id: str) -> dict[str, Any]:
        known = self._position_by_index.get(index)
        if known is None or (call_id and self._calls[known]["id"] not in ("", call_id)):
            self._position_by_index[index] = known = len(self._calls)
            self._calls.append({"id": "", "name": "", "arguments": "", "extra": None})
        call = self._calls[known]
        call["id"] = call["id"] or call_id
        return call


def _usage(raw: Any) -> Usage | None:
    """Return the reported usage. If prompt and completion do not add up to the total, only the total is kept."""
    if not raw:
        return None
    prompt, completion, total = (
        value if isinstance(value := field_of(raw, name), int) else 0
        for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    if not (prompt or completion or total):
        return None
    if total and prompt + completion != total:
        return Usage(total_tokens=total)
    details = field_of(raw, "prompt_tokens_details")
    cached = field_of(details, "cached_tokens") or field_of(raw, "prompt_cache_hit_tokens")
    known = cached if isinstance(cached, int) and not isinstance(cached, bool) else 0
    return Usage(prompt, completion, prompt + completion, cached_tokens=min(max(0, known), prompt))


def _is_chinese(text: str) -> bool:
    """Return whether a text is mainly Chinese: it has more ideographs than Latin words."""
    return len(_CHINESE.findall(text)) > len(_LATIN.findall(text))
