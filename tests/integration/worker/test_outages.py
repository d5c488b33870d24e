"""A worker whose database is unavailable for a moment."""

from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from store.runs import activations
from tests.builders import content
from tests.integration.engine import Bench
from worker.execution import executor


def refuse_claims(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Let the database refuse the first `times` claims; return a list with an entry for each claim."""
    claim, claims = activations.claim, list[int]()

    def refuse(*args: Any, **named: Any) -> Any:
        claims.append(len(claims))
        if len(claims) <= times:
            raise OperationalError("update", {}, Exception("the database system is starting up"))
        return claim(*args, **named)

    monkeypatch.setattr(activations, "claim", refuse)
    return claims


def test_task_message_received_during_a_database_restart_is_not_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> say", say=content("done"))
    refuse_claims(monkeypatch, 3)

    bench.play()

    assert (run.status, run.text) == ("succeeded", "done")
    assert {row.attempt for row in run.activations} == {1}


def test_worker_waits_for_its_database_only_for_some_seconds(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(executor, "CLAIM_PAUSES", (0.0, 0.01))
    run = bench.start("begin -> say", say=content("done"))
    claims = refuse_claims(monkeypatch, 100)

    with pytest.raises(OperationalError):
        bench.play()

    assert len(claims) == 3
    assert run.statuses["begin"] == "ready"


def test_worker_that_shuts_down_does_not_wait_for_the_database(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    bench.start("begin -> say", say=content("done"))
    worker = bench.a_worker()
    claims = refuse_claims(monkeypatch, 100)
    monkeypatch.setattr(type(worker.leases), "is_closed", property(lambda _: True))

    with pytest.raises(OperationalError):
        bench.play(worker)

    assert len(claims) == 1
