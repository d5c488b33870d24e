"""Readiness checks of a server that hangs: every request is answered in time and starts no further thread."""

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from api.health import ReadinessChecks
from api.requests.dependencies import ApiContext

CONTEXT = cast("ApiContext", None)  # the checks of these tests do not use it


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """A server that hangs until the event is set."""
    returns = threading.Event()
    yield returns
    returns.set()


def test_hanging_check_is_shared_with_the_next_request(hanging: threading.Event) -> None:
    calls: list[str] = []

    def database(_: Any) -> str:
        calls.append("database")
        assert hanging.wait(30)
        return "ok"

    readiness = ReadinessChecks({"database": database, "broker": lambda _: "ok"})
    before = threading.active_count()

    results = [readiness.run(CONTEXT, 0.01) for _ in range(20)]
    threads = threading.active_count() - before
    hanging.set()
    after = readiness.run(CONTEXT, 30)
    readiness.close()

    assert all(each["database"] != "ok" for each in results)
    assert threads <= 2
    assert after == {"database": "ok", "broker": "ok"}
    assert calls == ["database"]


def test_failing_check_is_reported_and_repeated() -> None:
    answers = iter([ConnectionError("refused"), None])

    def broker(_: Any) -> str:
        problem = next(answers)
        if problem is not None:
            raise problem
        return "ok"

    readiness = ReadinessChecks({"broker": broker})
    first, second = readiness.run(CONTEXT, 30), readiness.run(CONTEXT, 30)
    readiness.close()

    assert first["broker"] != "ok"
    assert second == {"broker": "ok"}
