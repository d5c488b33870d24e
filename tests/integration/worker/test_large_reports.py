"""Reports that take the database long: they get their time, and what is too much fails its own node."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from canvas.outcome import Finished
from store.db import database as database_module
from store.db.database import Database
from tests.builders import says
from tests.integration.engine import Bench, Run, at_work, until
from worker import report_content, reporter

BIG = "x" * (report_content.LARGE_REPORT + 1)
SHORT = timedelta(seconds=1)

SLOW = text("""
    create function store_slowly() returns trigger language plpgsql as $$
    begin perform pg_sleep(1.6); return new; end $$
""")
WHEN_LARGE = text("""
    create trigger slowly before insert on node_values for each row
    when (length(cast(new.outputs as text)) > 1000000) execute function store_slowly()
""")


@pytest.fixture
def database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A server that stores large values slowly, and allows transactions a moment only."""
    milliseconds = str(int(SHORT.total_seconds() * 1000))
    monkeypatch.setattr(database_module, "MAX_TRANSACTION_TIME", SHORT)
    monkeypatch.setattr(reporter, "MAX_TRANSACTION_TIME", SHORT)
    monkeypatch.setitem(database_module._SERVER_LIMITS, "statement_timeout", milliseconds)
    admin = Database(database_url, pool_size=1)
    with admin.transaction() as tx:
        tx.execute(text("set local statement_timeout = 0"))
        tx.execute(SLOW)
        tx.execute(WHEN_LARGE)
    admin.close()
    database = Database(database_url)
    yield database
    database.close()


def leaves(outputs: Any, assign: Any = None) -> Any:
    return lambda ctx: Finished(outputs=outputs, assign=assign or {})


def status_of(run: Run) -> str:
    """A run's status; empty where the reader itself took longer than the server allows."""
    try:
        return run.status
    except OperationalError:
        return ""


@pytest.mark.parametrize("rides_along", [True, False])
def test_large_report_has_a_time_limit_by_its_size(bench: Bench, rides_along: bool):
    bench.does(work=leaves({"text": BIG}))
    run = bench.start("begin -> work -> say", say=says("done"))

    bench.play(bench.a_worker(inline_advance=rides_along))

    assert run.status == "succeeded"
    assert run.activation("work").attempt == 1
    assert run.outputs("work")["text"] == BIG


@pytest.mark.parametrize("rides_along", [True, False])
def test_report_too_large_for_the_database_fails_its_node(
    bench: Bench, rides_along: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reporter, "MIN_STORE_RATE", 2**40)  # so it gets no more time than others
    bench.does(work=leaves({"text": BIG}))
    run = bench.start("begin -> work -> say", say=says("never"))

    with at_work(bench, bench.a_worker(inline_advance=rides_along)):
        until(lambda: status_of(run) == "failed")

    assert "take the database longer than" in run.row["error"]
    assert "EASEL_LARGE_VALUES" in run.row["error"]
    assert run.activation("work").attempt == 1


def test_small_report_is_repeated_while_the_database_is_busy(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> work -> say", say=says("done"))
    tries: list[object] = []
    written = reporter.Reporter._store

    def busy(self: Any, told: Any, **more: Any) -> None:
        tries.append(told)
        if len(tries) <= 6:
            with self.coordinator.database.transaction() as tx:
                tx.scalar(text("select pg_sleep(5)"))
        written(self, told, **more)

    monkeypatch.setattr(reporter.Reporter, "_store", busy)
    bench.play()

    assert run.status == "succeeded"
    assert len(tries) > 6


def test_output_limit_applies_to_everything_that_a_report_stores(bench: Bench):
    worker = bench.a_worker(max_output=1_000)
    bench.does(
        alone=leaves({"text": "x" * 900}), work=leaves({"text": "x" * 600}, {"env.a": "x" * 300, "env.b": "x" * 300})
    )
    alone = bench.start("begin -> alone -> say", say=says("done"))
    together = bench.start("begin -> work -> say", say=says("never"))

    bench.play(worker)

    assert (alone.status, together.status) == ("succeeded", "failed")
    assert "together larger than 1000 characters" in together.row["error"]
