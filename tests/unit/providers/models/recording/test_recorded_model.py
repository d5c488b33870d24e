"""A recorded model: the status, times, tries and answer of each call, however it ends."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from canvas.errors import ModelError
from providers.errors import ErrorCode, ProviderError
from providers.models.billing.metering import BillingContext, Meter, RequestSize, set_billing_context
from providers.models.chat.retrying_model import RetryingModel, RetryPolicy
from providers.models.embeddings.retrying_call import call_with_retries
from providers.models.limits.rate_limited_wire import PermitRequest, RateLimitedWire
from providers.models.recording.model_calls import ModelCall
from providers.models.recording.recorded_model import RecordedModel
from providers.models.types.chat import (
    CallsDelta,
    ChatRequest,
    ContentDelta,
    Delta,
    ModelSpec,
    ReasoningDelta,
    ToolCall,
    Usage,
    UsageDelta,
)

SPEC = ModelSpec("m@F", "m", "F", None, api_key="sk-0123456789")
REQUEST = ChatRequest([{"role": "user", "content": "Hi"}], retries=3)
FAILURE = ProviderError(ErrorCode.SERVER_ERROR, "down, key sk-0123456789")
ANSWER = [ReasoningDelta("Hm."), ContentDelta("Hello"), ContentDelta("!"), UsageDelta(Usage(3, 2, 5))]


@dataclass
class Recorder:
    calls: list[ModelCall] = field(default_factory=list[ModelCall])
    discarded: list[ModelCall] = field(default_factory=list[ModelCall])

    def add(self, call: ModelCall) -> None:
        self.calls.append(call)

    def discard(self, call: ModelCall) -> None:
        self.discarded.append(call)

    @property
    def call(self) -> ModelCall:
        (call,) = self.calls
        return call


@dataclass
class Wire:
    """A wire that plays one list of deltas and errors for each request; `None` in a list hangs."""

    script: Sequence[Sequence[Delta | ProviderError | None]]
    sent: int = 0

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        self.sent += 1
        for step in self.script[self.sent - 1]:
            if step is None:
                await asyncio.get_running_loop().create_future()
            elif isinstance(step, ProviderError):
                raise step
            else:
                yield step


async def no_sleep(_: float) -> None:
    return None


def recorded(recorder: Recorder, *script: Sequence[Delta | ProviderError | None]) -> RecordedModel:
    return RecordedModel(RetryingModel(SPEC, Wire(script), RetryPolicy(sleep=no_sleep)), recorder)


async def read(model: RecordedModel, request: ChatRequest = REQUEST) -> None:
    async for _ in model.stream(request):
        pass


async def ask(model: RecordedModel, request: ChatRequest = REQUEST) -> None:
    await model.complete(request)


both = pytest.mark.parametrize("call", [read, ask])
Call = Callable[..., Awaitable[None]]


@both
def test_answered_call_is_ok_with_answer_reasoning_and_usage(call: Call):
    recorder = Recorder()

    asyncio.run(call(recorded(recorder, ANSWER)))

    made = recorder.call
    assert (made.status, made.error, made.progress.tries) == ("ok", "", 1)
    assert made.response == {"role": "assistant", "content": "Hello!", "reasoning_content": "Hm."}
    assert made.usage == Usage(3, 2, 5, calls=1)
    assert made.ended is not None
    assert (made.first_token is not None) == (call is read)
    assert made.request is REQUEST


@both
def test_requested_tool_calls_are_part_of_the_answer(call: Call):
    recorder = Recorder()

    asyncio.run(call(recorded(recorder, [CallsDelta((ToolCall("1", "f", "{}"),)), UsageDelta(Usage())])))

    assert recorder.call.response == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }


@both
def test_repeated_request_counts_as_a_try_of_one_call(call: Call):
    recorder = Recorder()

    asyncio.run(call(recorded(recorder, [FAILURE], [FAILURE], ANSWER)))

    assert (recorder.call.status, recorder.call.progress.tries) == ("ok", 3)
    assert recorder.call.usage.calls == 3


@both
def test_failed_call_has_the_error_without_the_key(call: Call):
    recorder = Recorder()

    asyncio.run(call(recorded(recorder, *[[FAILURE]] * 4)))

    made = recorder.call
    assert (made.status, made.error, made.response) == ("failed", "SERVER_ERROR - down, key ***", None)
    assert made.progress.tries == 4


def test_stream_that_fails_after_some_text_is_cut():
    recorder = Recorder()

    asyncio.run(read(recorded(recorder, [ContentDelta("Hel"), ContentDelta("lo"), FAILURE])))

    made = recorder.call
    assert (made.status, made.error) == ("cut", "SERVER_ERROR - down, key ***")
    assert made.response is not None
    assert "Hel".startswith(str(made.response["content"])[:3])


@both
def test_cancelled_call_keeps_what_it_has_received(call: Call):
    recorder = Recorder()

    async def cancel() -> None:
        task = asyncio.create_task(call(recorded(recorder, [ContentDelta("A whole sentence. "), None])))  # type: ignore[arg-type]
        while not recorder.calls or not recorder.call.progress.tries:
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(cancel())

    assert recorder.call.status == "cancelled"
    if call is read:
        assert recorder.call.response is not None
    assert recorder.discarded == []


def test_reader_that_closes_the_stream_cancels_the_call():
    recorder = Recorder()

    async def close() -> None:
        stream = recorded(recorder, ANSWER).stream(REQUEST)
        await anext(stream)
        await stream.aclose()

    asyncio.run(close())

    assert recorder.call.status == "cancelled"


def test_call_that_raises_is_failed():
    recorder = Recorder()

    class Broken(RetryingModel):
        async def complete(self, request: ChatRequest) -> Any:
            raise ModelError("no key sk-0123456789")

    with pytest.raises(ModelError):
        asyncio.run(ask(RecordedModel(Broken(SPEC, Wire([])), recorder)))

    assert (recorder.call.status, recorder.call.error) == ("failed", "no key ***")


# -- rate limits -----------------------------------------------------------------------------------------------------
class Limiter:
    """A limiter that lets a request wait a little, or for ever."""

    def __init__(self, *, for_ever: bool = False) -> None:
        self.for_ever = for_ever

    async def acquire(self, request: PermitRequest) -> Any:
        if self.for_ever:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0.02)
        return self

    def release(self, tokens: int | None, failed: ProviderError | None) -> None:
        pass

    def observe_headers(self, headers: Any) -> None:
        pass


class Postponing:
    """A wait whose attempt is postponed, or not."""

    def __init__(self, *, is_postponed: bool) -> None:
        self.is_postponed = is_postponed

    def mark_sent(self) -> None:
        pass

    async def wait(self, seconds: float, title: str) -> None:
        pass


def limited(recorder: Recorder, limiter: Limiter) -> RecordedModel:
    wire = RateLimitedWire(Wire([ANSWER]), limiter)
    return RecordedModel(RetryingModel(SPEC, wire, RetryPolicy(sleep=no_sleep)), recorder)


@both
def test_wait_for_the_rate_limit_is_measured(call: Call):
    recorder = Recorder()

    asyncio.run(call(limited(recorder, Limiter())))

    assert 0.015 < recorder.call.progress.waited < 5
    assert recorder.call.progress.tries == 1


@pytest.mark.parametrize("is_postponed", [True, False])
@both
def test_call_that_was_not_sent_is_discarded_only_if_its_attempt_is_postponed(call: Call, is_postponed: bool):
    recorder = Recorder()
    request = ChatRequest(REQUEST.messages, rate_limit_wait=Postponing(is_postponed=is_postponed))

    async def cancel() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await call(limited(recorder, Limiter(for_ever=True)), request)

    asyncio.run(cancel())

    assert bool(recorder.discarded) == is_postponed
    if not is_postponed:
        assert (recorder.call.status, recorder.call.progress.tries) == ("cancelled", 0)


# -- other models ----------------------------------------------------------------------------------------------------
def metered(recorder: Recorder, kind: str, results: Sequence[Any], policy: RetryPolicy) -> Any:
    left = list(results)

    async def send() -> tuple[Any, int | None]:
        result = left.pop(0)
        if isinstance(result, Exception):
            raise result
        return result, 7

    async def run() -> Any:
        set_billing_context(BillingContext(recorder=recorder))
        return await call_with_retries(send, RequestSize(("a", "b")), Meter(SPEC, kind), policy)

    return asyncio.run(run())


def test_repeated_request_to_another_model_is_a_try_of_one_call():
    recorder = Recorder()

    metered(recorder, "rerank", [FAILURE, [0.5, 1.0]], RetryPolicy(sleep=no_sleep))

    made = recorder.call
    assert (made.kind, made.status, made.progress.tries, made.texts) == ("rerank", "ok", 2, ("a", "b"))
    assert made.response == {"scores": [0.5, 1.0]}
    assert made.usage.calls == 2


def test_failed_request_to_another_model_has_the_error_without_the_key():
    recorder = Recorder()

    with pytest.raises(ModelError):
        metered(recorder, "asr", [FAILURE], RetryPolicy(retries=0))

    assert (recorder.call.kind, recorder.call.status) == ("transcription", "failed")
    assert "down, key ***" in recorder.call.error


@pytest.mark.parametrize(
    ("kind", "result", "response"),
    [
        ("tts", b"audio", {"bytes": 5}),
        ("asr", "Hello.", {"text": "Hello."}),
        ("embedding", object(), {"vectors": 0, "dimensions": 0}),
    ],
)
def test_result_of_another_model_is_described(kind: str, result: Any, response: Any):
    recorder = Recorder()

    metered(recorder, kind, [result], RetryPolicy())

    assert recorder.call.response == response


def test_request_without_a_recorder_is_not_recorded():
    async def send() -> tuple[str, int | None]:
        return "text", None

    assert asyncio.run(Meter(SPEC, "asr").call(send, RequestSize())) == "text"
