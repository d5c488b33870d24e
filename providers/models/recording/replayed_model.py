"""A chat model that answers from a recording: each call of a step gets the answer that it got then.

A step's answers are in order of its calls, by the journal key of the call: calls that run at the same time have
different keys (`model_calls.journal_place`). So a replay gives each call its own answer, whatever finishes first.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from canvas.errors import ModelError
from providers.errors import ErrorCode
from providers.models.recording.model_calls import current_key
from providers.models.types.chat import (
    CallsDelta,
    ChatModel,
    ChatRequest,
    Completion,
    ContentDelta,
    Delta,
    ErrorDelta,
    ModelSpec,
    ReasoningDelta,
    ToolCall,
    Usage,
    UsageDelta,
)

NOT_RECORDED = "The recording has no answer for this call of a model."
_DELTA_CHARS = 256


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """The answer to one call. `error` is "CODE - detail" as the call's row has it. `never_ended`: it was cancelled."""

    key: str | None
    message: Mapping[str, Any] | None  # of OpenAI's API; None: the call brought no text
    usage: Usage = field(default_factory=Usage)
    error: str = ""
    never_ended: bool = False


class RecordedAnswers:
    """The answers to the calls of one step. Several threads and event loops may ask."""

    def __init__(self, answers: Iterable[RecordedAnswer], models: Mapping[str, ModelSpec]) -> None:
        self._answers: dict[str | None, deque[RecordedAnswer]] = {}
        for answer in answers:
            self._answers.setdefault(answer.key, deque()).append(answer)
        self._models = models
        self._lock = threading.Lock()

    async def open_model(self, llm_id: str) -> ChatModel:
        """Return the model with this id, as it was when the run was recorded."""
        return ReplayedModel(self._models.get(llm_id) or unknown_model(llm_id), self)

    def take(self, key: str | None) -> RecordedAnswer | None:
        """Return the next answer for a journal key; None if there is none left."""
        with self._lock:
            left = self._answers.get(key)
            return left.popleft() if left else None


class ReplayedModel:
    """A model whose answers are those of a recording."""

    def __init__(self, spec: ModelSpec, answers: RecordedAnswers) -> None:
        self._spec = spec
        self._answers = answers

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Yield the recorded answer in parts. A call that was cancelled then waits until it is cancelled now."""
        answer = self._take(request)
        completion = _completion(answer)
        for part in _parts(completion.reasoning):
            yield ReasoningDelta(part)
        for part in _parts(completion.text):
            yield ContentDelta(part)
        if answer.never_ended:
            await asyncio.Event().wait()
        if completion.calls:
            yield CallsDelta(completion.calls)
        if completion.error is not None:
            yield completion.error
        yield UsageDelta(answer.usage)

    async def complete(self, request: ChatRequest) -> Completion:
        """Return the recorded answer."""
        answer = self._take(request)
        if answer.never_ended:
            await asyncio.Event().wait()
        completion = _completion(answer)
        if completion.error is not None:  # the text of a failed answer is its error
            return Completion(str(completion.error), completion.reasoning, usage=answer.usage, error=completion.error)
        return completion

    def _take(self, request: ChatRequest) -> RecordedAnswer:
        if request.progress is not None:
            request.progress.tries += 1
        answer = self._answers.take(current_key())
        if answer is None:
            raise ModelError(NOT_RECORDED)
        return answer


def unknown_model(llm_id: str) -> ModelSpec:
    """Return the spec of a model that no account has any more: it can do everything, and cuts no prompt."""
    return ModelSpec(
        id=llm_id,
        name=llm_id.partition("@")[0],
        factory=llm_id.partition("@")[2],
        base_url=None,
        kinds=frozenset({"chat", "vision"}),
        context_tokens=2**31 - 1,
        is_tools=True,
        is_builtin=True,
    )


def _completion(answer: RecordedAnswer) -> Completion:
    message = answer.message or {}
    return Completion(
        str(message.get("content") or ""),
        str(message.get("reasoning_content") or ""),
        tuple(_tool_calls(message.get("tool_calls") or ())),
        answer.usage,
        _error(answer.error) if answer.error else None,
    )


def _error(text: str) -> ErrorDelta:
    """Return the error of a recorded call. Raises ModelError for one that came from no provider."""
    code, separator, detail = text.partition(" - ")
    if not separator or code not in set(ErrorCode):
        raise ModelError(text)
    return ErrorDelta(code, detail)


def _tool_calls(listed: Sequence[Mapping[str, Any]]) -> Iterator[ToolCall]:
    for call in listed:
        function = call["function"]
        yield ToolCall(call["id"], function["name"], function["arguments"], call.get("extra_content"))


def _parts(text: str) -> Iterator[str]:
    for start in range(0, len(text), _DELTA_CHARS):
        yield text[start : start + _DELTA_CHARS]
