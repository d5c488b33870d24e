"""Keys of requests: the same for a repetition, another one for every other request."""

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
from providers.models.types.rate_limits import RateLimitKey, VendorRateLimit
from tests.fakes import FakeHttp

ORDER = HttpCall("POST", "http://shop.test/orders", json={"item": 1})


def fine(call: HttpCall) -> HttpResponse:
    return HttpResponse(200, {}, b"", call.url)


def keys(*calls: HttpCall, http: IdempotentHttp | None = None, answer: Any = fine) -> list[str | None]:
    """The keys under which some requests of an activation leave."""
    inner = FakeHttp(answer)
    asyncio.run(_sent(http or IdempotentHttp(inner, IdempotencyKeys("activation")), calls))
    return [call.headers.get(HEADER) for call in inner.calls]


async def _sent(http: IdempotentHttp, calls: Sequence[HttpCall]) -> None:
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
def test_a_try_after_no_good_answer_repeats_the_request(status: int):
    first, second, third = keys(ORDER, ORDER, answer=lambda _: HttpResponse(status, {}, b"", "")) + keys(ORDER)

    assert first == second == third


def test_a_try_after_a_broken_connection_repeats_the_request():
    def breaks(call: HttpCall) -> HttpResponse:
        raise HttpFailed("broken", retryable=True)

    first, second = keys(ORDER, ORDER, answer=breaks)

    assert first == second


@pytest.mark.parametrize("method", ["GET", "head", "OPTIONS"])
def test_what_only_asks_has_no_key(method: str):
    assert keys(HttpCall(method, "http://shop.test")) == [None]


def test_a_key_that_was_given_stays():
    inner = FakeHttp(fine)

    asyncio.run(
        IdempotentHttp(inner, IdempotencyKeys("a")).send(
            HttpCall("POST", "http://shop.test", headers={"idempotency-key": "k"})
        )
    )

    assert dict(inner.calls[0].headers) == {"idempotency-key": "k"}


def test_the_same_request_of_another_activation_or_part_of_one_is_another_request():
    inner = FakeHttp(fine)
    http = IdempotentHttp(inner, IdempotencyKeys("activation"))

    for one in (http, within(http, "0:1"), within(http, "0:2"), IdempotentHttp(inner, IdempotencyKeys("other"))):
        asyncio.run(one.send(ORDER))

    assert len({call.headers[HEADER] for call in inner.calls}) == 4


def test_requests_that_are_under_way_together_have_keys_of_their_own():
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
    """Notes the keys under which it is asked."""

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


async def asked(model: Model, *questions: str) -> None:
    keyed = IdempotentModel(model, IdempotencyKeys("activation"))
    for question in questions:
        request = ChatRequest([{"role": "user", "content": question}])
        async for _ in keyed.stream(request):
            pass
    await keyed.complete(ChatRequest([{"role": "user", "content": "at once"}]))


def test_rounds_of_a_model_have_keys_that_another_attempt_repeats():
    first, second = Model(), Model()

    asyncio.run(asked(first, "a", "b", "a"))
    asyncio.run(asked(second, "a", "b", "a"))

    assert first.keys == second.keys
    assert len({*first.keys}) == 4


def test_a_model_that_has_failed_is_asked_again_under_the_same_key():
    model = Model([ErrorDelta("SERVER_ERROR", "broken")])

    asyncio.run(asked(model, "a", "a"))

    assert model.keys[0] == model.keys[1]


# -- at a vendor's pace ----------------------------------------------------------------------------------------------
SLOWLY = VendorRateLimit(requests=1, seconds=3.0)
QUESTION = HttpCall("GET", "http://Preprints.test:8080/api", params={"q": "a"}, rate_limit=SLOWLY)


@dataclass
class Line:
    """Where requests wait; it lets each of them leave, and notes what it was told."""

    tickets: list[str] = field(default_factory=list)
    paces: list[RateLimitKey] = field(default_factory=list)
    refused: list[ProviderError | None] = field(default_factory=list)

    async def acquire(self, limit: RateLimitKey, ticket: str) -> "Line":
        self.paces.append(limit)
        self.tickets.append(ticket)
        return self

    def release(self, tokens: int | None, failed: ProviderError | None) -> None:
        self.refused.append(failed)


def answering(status: int, **headers: str) -> Callable[[HttpCall], HttpResponse]:
    return lambda call: HttpResponse(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, b"", call.url
    )


def lined_up(*calls: HttpCall, answer: Any = fine) -> Line:
    line = Line()
    asyncio.run(_sent(IdempotentHttp(FakeHttp(answer), IdempotencyKeys("activation"), line), calls))
    return line


def test_a_request_waits_for_its_vendors_pace_under_the_same_ticket_in_every_attempt():
    again = HttpCall("GET", "http://preprints.test:8080/api", params={"q": "b"}, rate_limit=SLOWLY)

    line = lined_up(QUESTION, again, QUESTION)

    assert line.tickets == lined_up(QUESTION, again, QUESTION).tickets
    assert len({*line.tickets}) == 3
    assert {limit.key for limit in line.paces} == {SLOWLY.for_host("preprints.test:8080").key}
    assert line.refused == []


def test_a_request_to_a_vendor_without_a_pace_waits_for_nothing():
    assert lined_up(ORDER).tickets == []


def test_a_try_after_no_good_answer_waits_with_the_ticket_that_it_had():
    line = lined_up(QUESTION, QUESTION, answer=answering(500))

    assert line.tickets[0] == line.tickets[1]
    assert line.refused == []


def test_a_part_of_an_activation_waits_under_tickets_of_its_own():
    line = Line()
    http = IdempotentHttp(FakeHttp(fine), IdempotencyKeys("activation"), line)

    for one in (http, within(http, "0:1"), within(http, "0:2")):
        asyncio.run(one.send(QUESTION))

    assert len({*line.tickets}) == 3


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [(429, {"retry_after": "7"}, 7.0), (429, {}, None), (503, {"retry_after": "7"}, 7.0)],
)
def test_a_vendor_that_was_asked_too_fast_holds_all_back(status: int, headers: dict[str, str], seconds: float | None):
    line = lined_up(QUESTION, answer=answering(status, **headers))

    (refused,) = line.refused
    assert refused is not None
    assert (refused.code, refused.retry_after) == (ErrorCode.RATE_LIMIT_EXCEEDED, seconds)
