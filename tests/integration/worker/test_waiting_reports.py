"""A report that the database does not take at once is kept, and so is its lease."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from store.runs import reports
from store.tables.runs import activations as rows
from tests.integration.engine import Bench, Run, until

LEASE = timedelta(milliseconds=900)


def test_waiting_report_keeps_its_lease(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    is_full, tried = threading.Event(), threading.Event()
    is_full.set()
    for way in ("report", "report_inline"):
        store = getattr(reports, way)

        def refuse(*given: Any, store: Callable[..., Any] = store) -> Any:
            if is_full.is_set():
                tried.set()
                raise OperationalError("update", {}, Exception("could not extend file"))
            return store(*given)

        monkeypatch.setattr(reports, way, refuse)
    run = bench.start("begin -> work")
    worker = bench.a_worker(lease=LEASE, renew_every=LEASE / 4)
    thread = threading.Thread(target=worker.execute, args=(run.id, run.activation("begin").id))
    thread.start()
    until(tried.is_set)
    first = lease_of(run)

    until(lambda: lease_of(run) > first + LEASE)
    is_full.clear()
    thread.join()

    assert (run.statuses["begin"], run.activation("begin").attempt) == ("reported", 1)
    bench.coordinator.advance_run(run.id)  # as the scheduler does, whom the worker has told
    assert run.statuses == {"begin": "done", "work": "ready"}


def lease_of(run: Run) -> datetime:
    """Until when the lease on the run's first node holds."""
    with run.bench.database.transaction() as tx:
        return tx.scalar(select(rows.c.lease_until).where(rows.c.run_id == run.id, rows.c.node_id == "begin"))
