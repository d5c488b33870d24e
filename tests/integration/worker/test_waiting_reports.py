"""A report that the database refuses at first is retained and sent again, and its lease is renewed."""

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


def test_lease_of_an_unstored_report_is_renewed(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    is_refusing, tried = threading.Event(), threading.Event()
    is_refusing.set()
    for function in ("report", "report_inline"):
        store = getattr(reports, function)

        def refuse(*args: Any, store: Callable[..., Any] = store) -> Any:
            if is_refusing.is_set():
                tried.set()
                raise OperationalError("update", {}, Exception("could not extend file"))
            return store(*args)

        monkeypatch.setattr(reports, function, refuse)
    run = bench.start("begin -> work")
    worker = bench.a_worker(lease=LEASE, renew_every=LEASE / 4)
    thread = threading.Thread(target=worker.execute, args=(run.id, run.activation("begin").id))
    thread.start()
    until(tried.is_set)
    first = lease_of(run)

    until(lambda: lease_of(run) > first + LEASE)
    is_refusing.clear()
    thread.join()

    assert (run.statuses["begin"], run.activation("begin").attempt) == ("reported", 1)
    bench.coordinator.advance_run(run.id)  # as the scheduler does after the message of the worker
    assert run.statuses == {"begin": "done", "work": "ready"}


def lease_of(run: Run) -> datetime:
    """Return the expiry of the lease on the first node of a run."""
    with run.bench.database.transaction() as tx:
        return tx.scalar(select(rows.c.lease_until).where(rows.c.run_id == run.id, rows.c.node_id == "begin"))
