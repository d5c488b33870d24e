"""Who waits for a server that keeps silent, and who does not."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler.messaging import circuit_breaker
from scheduler.messaging.circuit_breaker import ASKED_AGAIN_AFTER, CircuitBreaker


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


def test_a_server_that_answers_is_asked():
    assert not CircuitBreaker().holds()


def test_a_silent_server_is_left_alone_for_a_moment(clock: Clock):
    silent = CircuitBreaker()
    silent.begins()

    clock.now += ASKED_AGAIN_AFTER / 2

    assert silent.holds()


def test_after_a_moment_one_asks_and_the_others_go_on_without(clock: Clock):
    silent = CircuitBreaker()
    silent.begins()
    clock.now += ASKED_AGAIN_AFTER

    with ThreadPoolExecutor(8) as pool:
        goes_on = list(pool.map(lambda _: silent.holds(), range(50)))

    assert goes_on.count(False) == 1


def test_one_that_asks_and_is_never_heard_of_again_keeps_nobody_from_asking(clock: Clock):
    silent = CircuitBreaker()
    silent.begins()

    asked = 0
    for _ in range(3):
        clock.now += ASKED_AGAIN_AFTER
        asked += not silent.holds()

    assert asked == 3


def test_everybody_asks_a_server_that_has_answered_again(clock: Clock):
    silent = CircuitBreaker()
    silent.begins()

    silent.ends()

    assert not any(silent.holds() for _ in range(5))
