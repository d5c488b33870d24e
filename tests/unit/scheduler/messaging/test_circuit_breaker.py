"""Which calls are blocked while a server does not answer."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler.messaging import circuit_breaker
from scheduler.messaging.circuit_breaker import RETRY_AFTER, CircuitBreaker


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(circuit_breaker, "time", clock)
    return clock


def test_closed_breaker_lets_calls_through():
    assert not CircuitBreaker().is_open()


def test_open_breaker_blocks_calls_for_a_moment(clock: Clock):
    breaker = CircuitBreaker()
    breaker.record_failure()

    clock.now += RETRY_AFTER / 2

    assert breaker.is_open()


def test_one_caller_tries_again_while_the_others_are_blocked(clock: Clock):
    breaker = CircuitBreaker()
    breaker.record_failure()
    clock.now += RETRY_AFTER

    with ThreadPoolExecutor(8) as pool:
        are_blocked = list(pool.map(lambda _: breaker.is_open(), range(50)))

    assert are_blocked.count(False) == 1


def test_caller_that_never_returns_does_not_block_later_tries(clock: Clock):
    breaker = CircuitBreaker()
    breaker.record_failure()

    tries = 0
    for _ in range(3):
        clock.now += RETRY_AFTER
        tries += not breaker.is_open()

    assert tries == 3


def test_success_closes_the_breaker_for_all_callers(clock: Clock):
    breaker = CircuitBreaker()
    breaker.record_failure()

    breaker.record_success()

    assert not any(breaker.is_open() for _ in range(5))
