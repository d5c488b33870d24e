"""Probes of a server that hangs: each is answered in time, and no thread is left behind for it."""

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from api.dependencies import ApiContext
from api.health import ReadinessChecks

EDGE = cast("ApiContext", None)  # the looks of these tests look at nothing


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """A server that hangs until the event is set."""
    returns = threading.Event()
    yield returns
    returns.set()


def test_hanging_check_is_shared_with_the_next_request(hanging: threading.Event) -> None:
    looks: list[str] = []

    def database(_: Any) -> str:
        looks.append("database")
        assert hanging.wait(30)
        return "ok"

    readiness = ReadinessChecks({"database": database, "broker": lambda _: "ok"})
    before = threading.active_count()

    found = [readiness.run(EDGE, 0.01) for _ in range(20)]
    threads = threading.active_count() - before
    hanging.set()
    after = readiness.run(EDGE, 30)
    readiness.close()

    assert all(each["database"] != "ok" for each in found)
    assert threads <= 2
    assert after == {"database": "ok", "broker": "ok"}
    assert looks == ["database"]


def test_failing_check_is_reported_and_repeated() -> None:
    answers = iter([ConnectionError("refused"), None])

    def broker(_: Any) -> str:
        problem = next(answers)
        if problem is not None:
            raise problem
        return "ok"

    readiness = ReadinessChecks({"broker": broker})
    first, second = readiness.run(EDGE, 30), readiness.run(EDGE, 30)
    readiness.close()

    assert first["broker"] != "ok"
    assert second == {"broker": "ok"}
