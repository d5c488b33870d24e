"""A worker whose database goes away for a moment."""

from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from store.runs import activations
from tests.builders import says
from tests.integration.engine import Bench
from worker import executor


def away_for(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """The database refuses so many claims; the list tells how many have come."""
    claim, came = activations.claim, list[int]()

    def refuse(*given: Any, **named: Any) -> Any:
        came.append(len(came))
        if len(came) <= times:
            raise OperationalError("update", {}, Exception("the database system is starting up"))
        return claim(*given, **named)

    monkeypatch.setattr(activations, "claim", refuse)
    return came


def test_a_message_that_comes_while_the_database_restarts_is_not_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> say", say=says("done"))
    away_for(monkeypatch, 3)

    bench.play()

    assert (run.status, run.said) == ("succeeded", "done")
    assert {row.attempt for row in run.activations} == {1}


def test_worker_waits_for_its_database_only_for_some_seconds(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(executor, "CLAIM_PAUSES", (0.0, 0.01))
    run = bench.start("begin -> say", say=says("done"))
    came = away_for(monkeypatch, 100)

    with pytest.raises(OperationalError):
        bench.play()

    assert len(came) == 3
    assert run.statuses["begin"] == "ready"


def test_worker_that_shuts_down_does_not_wait_for_the_database(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    bench.start("begin -> say", say=says("done"))
    worker = bench.a_worker()
    came = away_for(monkeypatch, 100)
    monkeypatch.setattr(type(worker.leases), "is_closed", property(lambda _: True))

    with pytest.raises(OperationalError):
        bench.play(worker)

    assert len(came) == 1
