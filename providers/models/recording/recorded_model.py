"""A chat model whose calls are recorded.

It is above the model that repeats requests and the one that prices them, so it sees a call as a whole: the tries, the
waits for rate limits, the cost, and an answer that was streamed as well as one that came whole.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from providers.errors import redact
from providers.models.recording.model_calls import CallRecorder, ModelCall
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
    UsageDelta,
)

CHAT = "chat"


class RecordedModel:
    """A chat model that adds each of its calls to a recorder."""

    def __init__(self, model: ChatModel, recorder: CallRecorder) -> None:
        self._model = model
        self._recorder = recorder

    @property
    def spec(self) -> ModelSpec:
        return self._model.spec

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Yield deltas as they arrive, one UsageDelta at the end. Closing the generator closes the connection."""
        call, request = self._begin(request)
        texts: list[str] = []
        thoughts: list[str] = []
        calls: tuple[ToolCall, ...] = ()
        error: ErrorDelta | None = None
        is_whole, failure = False, ""
        try:
            async with aclosing(cast("AsyncGenerator[Delta, None]", self._model.stream(request))) as deltas:
                async for delta in deltas:
                    match delta:
                        case ContentDelta(text):
                            call.note_token()
                            texts.append(text)
                        case ReasoningDelta(text):
                            call.note_token()
                            thoughts.append(text)
                        case CallsDelta(found):
                            call.note_token()
                            calls = found
                        case UsageDelta(usage):
                            call.usage += usage
                        case ErrorDelta():
                            error = delta
                    yield delta
            is_whole = True
        except Exception as problem:
            failure = str(problem)
            raise
        finally:
            answer = Completion("".join(texts), "".join(thoughts), calls, error=error)
            self._end(call, request, answer, is_whole=is_whole, failure=failure)

    async def complete(self, request: ChatRequest) -> Completion:
        """Return the whole answer without streaming."""
        call, request = self._begin(request)
        answer: Completion | None = None
        failure = ""
        try:
            answer = await self._model.complete(request)
            call.usage += answer.usage
            return answer
        except Exception as problem:
            failure = str(problem)
            raise
        finally:
            # the text of a failed answer is its error
            received = replace(answer, text="") if answer is not None and answer.error is not None else answer
            self._end(call, request, received or Completion(""), is_whole=answer is not None, failure=failure)

    def _begin(self, request: ChatRequest) -> tuple[ModelCall, ChatRequest]:
        call = ModelCall(CHAT, self.spec, request)
        self._recorder.add(call)
        return call, replace(request, progress=call.progress)

    def _end(self, call: ModelCall, request: ChatRequest, answer: Completion, *, is_whole: bool, failure: str) -> None:
        wait = request.rate_limit_wait
        if not is_whole and not failure and not call.progress.tries and wait is not None and wait.is_postponed:
            self._recorder.discard(call)
            return
        has_text = bool(answer.text or answer.reasoning or answer.calls)
        if answer.error is not None:
            failure = f"{answer.error.code} - {answer.error.detail}"
        if failure:
            response = _response_json(answer) if has_text else None
            call.end("cut" if has_text else "failed", redact(failure, *self.spec.secrets), response)
        else:
            call.end("ok" if is_whole else "cancelled", "", _response_json(answer) if has_text or is_whole else None)


def _response_json(answer: Completion) -> dict[str, Any]:
    """Return an answer as a message of OpenAI's API, without members that it lacks."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
                **({"extra_content": call.extra} if call.extra else {}),
            }
            for call in answer.calls
        ]
    return message
