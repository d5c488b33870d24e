"""Idempotency keys: a repeated request has the same key, every other request has another one."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import HttpFailed
from providers.errors import ErrorCode, ProviderError
from providers.interfaces import HttpCall, HttpResponse
from providers.models.limits.idempotency_keys import HEADER, IdempotencyKeys, IdempotentHttp, IdempotentModel, within
from providers.models.types.chat import ChatRequest, Completion, ContentDelta, Delta, ErrorDelta, ModelSpec
from providers.rate_limits import RateLimitKey, VendorRateLimit
from tests.fakes import FakeHttp

ORDER = HttpCall("POST", "http://shop.test/orders", json={"item": 1})


def fine(call: HttpCall) -> HttpResponse:
    return HttpResponse(200, {}, b"", call.url)


def keys(*calls: HttpCall, http: IdempotentHttp | None = None, answer: Any = fine) -> list[str | None]:
    """Send requests of one activation and return their idempotency keys."""
    inner = FakeHttp(answer)
    asyncio.run(_send_all(http or IdempotentHttp(inner, IdempotencyKeys("activation")), calls))
    return [call.headers.get(HEADER) for call in inner.calls]


async def _send_all(http: IdempotentHttp, calls: Sequence[HttpCall]) -> None:
    for call in calls:
        try:
            await http.send(call)
        except HttpFailed:
            continue


def test_another_attempt_sends_the_same_keys():
    other = HttpCall("DELETE", "http://shop.test/orders/1")

    assert keys(ORDER, other, ORDER) == keys(ORDER, other, ORDER)
    assert len({*keys(ORDER, other, ORDER)}) == 3


@given(st.lists(st.sampled_from("abc"), max_size=6))
def test_no_two_requests_of_an_activation_share_a_key(bodies: list[str]):
    sent = keys(*(HttpCall("POST", "http://shop.test", json=body) for body in bodies))

    assert len({*sent}) == len(bodies)


@pytest.mark.parametrize("status", [500, 429])
def test_try_after_an_error_status_has_the_same_key(status: int):
    first, second, third = keys(ORDER, ORDER, answer=lambda _: HttpResponse(status, {}, b"", "")) + keys(ORDER)

    assert first == second == third


def test_try_after_a_broken_connection_has_the_same_key():
    def break_connection(call: HttpCall) -> HttpResponse:
        raise HttpFailed("broken", retryable=True)

    first, second = keys(ORDER, ORDER, answer=break_connection)

    assert first == second


@pytest.mark.parametrize("method", ["GET", "head", "OPTIONS"])
def test_request_with_a_safe_method_has_no_key(method: str):
    assert keys(HttpCall(method, "http://shop.test")) == [None]


def test_key_set_by_the_caller_is_not_replaced():
    inner = FakeHttp(fine)

    asyncio.run(
        IdempotentHttp(inner, IdempotencyKeys("a")).send(
            HttpCall("POST", "http://shop.test", headers={"idempotency-key": "k"})
        )
    )

    assert dict(inner.calls[0].headers) == {"idempotency-key": "k"}


def test_same_request_of_another_activation_or_part_has_another_key():
    inner = FakeHttp(fine)
    http = IdempotentHttp(inner, IdempotencyKeys("activation"))

    for one in (http, within(http, "0:1"), within(http, "0:2"), IdempotentHttp(inner, IdempotencyKeys("other"))):
        asyncio.run(one.send(ORDER))

    assert len({call.headers[HEADER] for call in inner.calls}) == 4


def test_concurrent_identical_requests_have_distinct_keys():
    async def together() -> None:
        await asyncio.gather(*(http.send(ORDER) for _ in range(3)))

    inner = FakeHttp(fine)
    http = IdempotentHttp(Slow(inner), IdempotencyKeys("activation"))
    asyncio.run(together())

    assert len({call.headers[HEADER] for call in inner.calls}) == 3


@dataclass
class Slow:
    inner: FakeHttp

    async def send(self, call: HttpCall) -> HttpResponse:
        await asyncio.sleep(0)
        return await self.inner.send(call)


# -- models -----------------------------------------------------------------------------------------------------------
@dataclass
class Model:
    """Record the keys of the requests."""

    deltas: Sequence[Delta] = (ContentDelta("hi"),)
    keys: list[str | None] = field(default_factory=list)

    @property
    def spec(self) -> ModelSpec:
        return ModelSpec("m", "m", "f", None)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        self.keys.append(request.key)
        for delta in self.deltas:
            yield delta

    async def complete(self, request: ChatRequest) -> Completion:
        self.keys.append(request.key)
        return Completion("hi")


async def ask_model(model: Model, *questions: str) -> None:
    keyed = IdempotentModel(model, IdempotencyKeys("activation"))
    for question in questions:
        request = ChatRequest([{"role": "user", "content": question}])
        async for _ in keyed.stream(request):
            pass
    await keyed.complete(ChatRequest([{"role": "user", "content": "at once"}]))


def test_model_rounds_have_the_same_keys_in_another_attempt():
    first, second = Model(), Model()

    asyncio.run(ask_model(first, "a", "b", "a"))
    asyncio.run(ask_model(second, "a", "b", "a"))

    assert first.keys == second.keys
    assert len({*first.keys}) == 4


def test_model_call_after_a_failure_has_the_same_key():
    model = Model([ErrorDelta("SERVER_ERROR", "broken")])

    asyncio.run(ask_model(model, "a", "a"))

    assert model.keys[0] == model.keys[1]


# -- vendor rate limits ----------------------------------------------------------------------------------------------
RATE_LIMIT = VendorRateLimit(requests=1, seconds=3.0)
QUESTION = HttpCall("GET", "http://Preprints.test:8080/api", params={"q": "a"}, rate_limit=RATE_LIMIT)


@dataclass
class FakeRateLimiter:
    """Permit every request, and record limits, tickets and failures."""

    tickets: list[str] = field(default_factory=list)
    limits: list[RateLimitKey] = field(default_factory=list)
    refused: list[ProviderError | None] = field(default_factory=list)

    async def acquire(self, limit: RateLimitKey, ticket: str) -> "FakeRateLimiter":
        self.limits.append(limit)
        self.tickets.append(ticket)
        return self

    def release(self, tokens: int | None, failed: ProviderError | None) -> None:
        self.refused.append(failed)


def answering(status: int, **headers: str) -> Callable[[HttpCall], HttpResponse]:
    return lambda call: HttpResponse(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, b"", call.url
    )


def send_rate_limited(*calls: HttpCall, answer: Any = fine) -> FakeRateLimiter:
    limiter = FakeRateLimiter()
    asyncio.run(_send_all(IdempotentHttp(FakeHttp(answer), IdempotencyKeys("activation"), limiter), calls))
    return limiter


def test_request_waits_for_its_vendor_limit_with_the_same_ticket_in_every_attempt():
    again = HttpCall("GET", "http://preprints.test:8080/api", params={"q": "b"}, rate_limit=RATE_LIMIT)

    limiter = send_rate_limited(QUESTION, again, QUESTION)

    assert limiter.tickets == send_rate_limited(QUESTION, again, QUESTION).tickets
    assert len({*limiter.tickets}) == 3
    assert {limit.key for limit in limiter.limits} == {RATE_LIMIT.for_host("preprints.test:8080").key}
    assert limiter.refused == []


def test_request_to_a_vendor_without_a_limit_takes_no_ticket():
    assert send_rate_limited(ORDER).tickets == []


def test_try_after_an_error_status_waits_with_the_same_ticket():
    limiter = send_rate_limited(QUESTION, QUESTION, answer=answering(500))

    assert limiter.tickets[0] == limiter.tickets[1]
    assert limiter.refused == []


def test_part_of_an_activation_has_its_own_tickets():
    limiter = FakeRateLimiter()
    http = IdempotentHttp(FakeHttp(fine), IdempotencyKeys("activation"), limiter)

    for one in (http, within(http, "0:1"), within(http, "0:2")):
        asyncio.run(one.send(QUESTION))

    assert len({*limiter.tickets}) == 3


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [(429, {"retry_after": "7"}, 7.0), (429, {}, None), (503, {"retry_after": "7"}, 7.0)],
)
def test_rate_limit_response_is_reported_to_the_limiter_with_its_delay(
    status: int, headers: dict[str, str], seconds: float | None
):
    limiter = send_rate_limited(QUESTION, answer=answering(status, **headers))

    (refused,) = limiter.refused
    assert refused is not None
    assert (refused.code, refused.retry_after) == (ErrorCode.RATE_LIMIT_EXCEEDED, seconds)
