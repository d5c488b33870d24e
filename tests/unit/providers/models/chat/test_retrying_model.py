import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from providers.errors import ErrorCode, ProviderError, provider_error
from providers.models.chat.retrying_model import RetryingModel, RetryPolicy
from providers.models.types.chat import (
    CallsDelta,
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

ASK = [{"role": "user", "content": "Hello there"}]
SPEC = ModelSpec("m@Acme", "m", "Acme", "https://acme.example/v1", api_key="sk-very-secret")


class Wire:
    """Replay one list of deltas or failures for each request."""

    def __init__(self, *plays: Sequence[Delta | ProviderError]) -> None:
        self._plays = list(plays)
        self.sent = 0
        self.closed = 0

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        self.sent += 1
        try:
            for step in self._plays[min(self.sent, len(self._plays)) - 1]:
                if isinstance(step, ProviderError):
                    raise step
                yield step
        finally:
            self.closed += 1


class Waits(list[float]):
    """Record each wait without sleeping."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def model_over(wire: Wire, waits: Waits | None = None, jitter: float = 1.0) -> RetryingModel:
    return RetryingModel(SPEC, wire, RetryPolicy(waits if waits is not None else Waits(), lambda: jitter))


def streamed(wire: Wire, waits: Waits | None = None, jitter: float = 1.0, **request: Any) -> list[Delta]:
    async def read() -> list[Delta]:
        return [delta async for delta in model_over(wire, waits, jitter).stream(ChatRequest(ASK, **request))]

    return asyncio.run(read())


def completed(wire: Wire, waits: Waits | None = None, **request: Any) -> Completion:
    return asyncio.run(model_over(wire, waits).complete(ChatRequest(ASK, **request)))


def without_usage(deltas: list[Delta]) -> list[Delta]:
    return [delta for delta in deltas if not isinstance(delta, UsageDelta)]


def test_answer_is_streamed_in_deltas_with_its_usage_at_the_end():
    deltas = streamed(Wire([ContentDelta("Hel"), ContentDelta("lo"), UsageDelta(Usage(3, 2, 5))]))

    assert deltas == [ContentDelta("Hel"), ContentDelta("lo"), UsageDelta(Usage(3, 2, 5, calls=1))]


def test_delta_that_repeats_earlier_text_is_not_dropped():
    deltas = streamed(Wire([ContentDelta("ha"), ContentDelta("ha")]))

    assert without_usage(deltas) == [ContentDelta("ha"), ContentDelta("ha")]


def test_usage_that_the_provider_does_not_report_is_estimated():
    deltas = streamed(Wire([ContentDelta("one two three")]))

    assert deltas[-1] == UsageDelta(Usage(2, 3, 5, calls=1))


def test_temporary_rate_limit_is_retried_without_an_error():
    wire = Wire([provider_error("429")], [ContentDelta("hi"), UsageDelta(Usage(1, 1, 2))])
    answer = completed(wire, retries=1)

    assert (answer.text, answer.error, wire.sent) == ("hi", None, 2)
    assert answer.usage == Usage(1, 1, 2, calls=2)


def test_stream_is_repeated_only_before_its_first_delta():
    wire = Wire([provider_error("503")], [ContentDelta("hi")])

    assert without_usage(streamed(wire, retries=1)) == [ContentDelta("hi")]
    assert wire.sent == 2


def test_interrupted_stream_ends_with_the_error_and_is_not_restarted():
    wire = Wire([ContentDelta("half"), provider_error("503 gone")], [ContentDelta("never")])
    deltas = streamed(wire, retries=5)

    assert without_usage(deltas) == [ContentDelta("half"), ErrorDelta("SERVER_ERROR", "503 gone")]
    assert isinstance(deltas[-1], UsageDelta)
    assert wire.sent == 1


def test_stream_with_reasoning_is_not_repeated():
    wire = Wire([ReasoningDelta("hm"), provider_error("503")], [ContentDelta("never")])

    assert without_usage(streamed(wire, retries=5)) == [ReasoningDelta("hm"), ErrorDelta("SERVER_ERROR", "503")]


def test_interrupted_answer_that_is_not_streamed_is_retried():
    wire = Wire([ContentDelta("half"), provider_error("503")], [ContentDelta("whole")])

    assert completed(wire, retries=1).text == "whole"


def test_last_failure_is_reported_with_its_error_code():
    wire = Wire([provider_error("429 slow down")])
    answer = completed(wire, retries=2)

    assert answer.text == "**ERROR**: RATE_LIMIT_EXCEEDED - 429 slow down"
    assert answer.error == ErrorDelta("RATE_LIMIT_EXCEEDED", "429 slow down")
    assert (wire.sent, answer.usage.calls) == (3, 3)


@pytest.mark.parametrize("message", ["invalid request: bad", "no such apikey", "quota used up", "boom"])
def test_permanent_failure_is_not_retried(message: str):
    wire = Wire([provider_error(message)])

    assert completed(wire, retries=5).error is not None
    assert wire.sent == 1


def test_without_retries_there_is_one_request():
    wire = Wire([provider_error("503")])
    streamed(wire)

    assert wire.sent == 1


def test_waits_double_up_to_one_minute():
    waits = Waits()
    streamed(Wire([provider_error("503")]), waits, retries=7, retry_delay=2.0)

    assert waits == [2, 4, 8, 16, 32, 60, 60]


def test_waits_are_shortened_by_jitter():
    waits = Waits()
    streamed(Wire([provider_error("503")]), waits, jitter=0.25, retries=2, retry_delay=2.0)

    assert waits == [0.5, 1.0]


def test_retry_after_of_a_provider_is_respected():
    waits = Waits()
    streamed(
        Wire([ProviderError(ErrorCode.RATE_LIMIT_EXCEEDED, "", retry_after=7.5)], [ContentDelta("hi")]),
        waits,
        retries=1,
    )

    assert waits == [7.5]


def test_request_is_not_retried_after_a_very_long_retry_after():
    wire, waits = Wire([ProviderError(ErrorCode.RATE_LIMIT_EXCEEDED, "later", retry_after=3600)]), Waits()
    deltas = streamed(wire, waits, retries=5)

    assert without_usage(deltas) == [ErrorDelta("RATE_LIMIT_EXCEEDED", "later")]
    assert (wire.sent, waits) == (1, [])


def test_an_error_text_never_shows_the_key():
    answer = completed(Wire([provider_error("401 key sk-very-secret is wrong")]))

    assert answer.text == "**ERROR**: AUTH_ERROR - 401 key *** is wrong"


def test_reasoning_in_tags_is_separated_from_the_answer():
    deltas = streamed(Wire([ContentDelta("<thi"), ContentDelta("nk>why</think>"), ContentDelta("so")]))

    assert without_usage(deltas) == [ReasoningDelta("why"), ContentDelta("so")]


def test_text_of_a_complete_answer_contains_no_reasoning():
    answer = completed(Wire([ContentDelta("why</think>\nso"), ReasoningDelta("hm")]))

    assert (answer.text, answer.reasoning) == ("so", "hm")


def test_buffered_text_is_sent_before_an_error():
    deltas = streamed(Wire([ContentDelta("<thin"), provider_error("503")]), retries=1)

    assert without_usage(deltas) == [ContentDelta("<thin"), ErrorDelta("SERVER_ERROR", "503")]


def test_tool_calls_come_after_the_text_without_null_characters():
    call = ToolCall("c1", "search", '{"q": "a\0"}')
    deltas = streamed(Wire([ContentDelta("wait\0"), CallsDelta((call,))]))

    assert without_usage(deltas) == [ContentDelta("wait"), CallsDelta((ToolCall("c1", "search", '{"q": "a"}'),))]


def test_complete_answer_contains_its_tool_calls():
    call = ToolCall("c1", "search", "{}")

    assert completed(Wire([CallsDelta((call,))])).calls == (call,)


def test_a_reader_that_is_cancelled_closes_the_wire():
    class Endless(Wire):
        async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
            try:
                yield ContentDelta("first")
                await asyncio.Event().wait()
            finally:
                self.closed += 1

    async def read(wire: Wire, first_delta: asyncio.Event) -> None:
        async for _ in model_over(wire).stream(ChatRequest(ASK)):
            first_delta.set()

    async def cancel_while_reading() -> int:
        wire, first_delta = Endless(), asyncio.Event()
        reader = asyncio.create_task(read(wire, first_delta))
        await first_delta.wait()
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        return wire.closed

    assert asyncio.run(cancel_while_reading()) == 1


def test_every_request_is_closed_before_the_next_is_sent():
    wire = Wire([provider_error("503")], [ContentDelta("hi")])
    streamed(wire, retries=1)

    assert wire.closed == wire.sent == 2


def test_request_without_its_own_retries_uses_the_retries_of_the_process() -> None:
    wire, waits = Wire([provider_error("429 slow down")]), Waits()
    model = RetryingModel(SPEC, wire, RetryPolicy(waits, lambda: 1.0, retries=2, base_delay=0.5))

    completion = asyncio.run(model.complete(ChatRequest(ASK, retries=None)))

    assert completion.error is not None
    assert wire.sent == 3
    assert waits == [0.5, 1.0]
