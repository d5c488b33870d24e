"""Reports that the database stores slowly: the time limit grows with their size, and a too large one fails its node."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from canvas.outcome import Finished
from store.db import database as database_module
from store.db.database import Database
from store.runs.reports import ReportPayload
from tests.builders import content
from tests.integration.engine import Bench, Run, at_work, new_reporter, until
from worker.execution import report_content, reporter

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
    """A database that stores large values slowly and has a short transaction limit."""
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


@pytest.mark.parametrize(
    ("size", "is_broken", "answers", "expected"),
    [(0, True, True, False), (9, False, True, False), (9, True, False, False), (9, True, True, True)],
)
def test_only_a_large_report_that_breaks_its_connection_while_the_database_answers_has_failed_by_its_size(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, size: int, is_broken: bool, answers: bool, expected: bool
):
    error = OperationalError("commit", {}, Exception("connection lost"), connection_invalidated=is_broken)
    reporting = new_reporter(bench.coordinator, bench.claim(bench.start("begin -> work"), "begin"))

    def ping(self: Database) -> None:
        if not answers:
            raise OperationalError("select 1", {}, Exception("connection refused"))

    monkeypatch.setattr(Database, "ping", ping)

    assert reporting._failed_by_size(error, ReportPayload({}, {}, [], [], size=size)) is expected


def return_outputs(outputs: Any, assign: Any = None) -> Any:
    return lambda ctx: Finished(outputs=outputs, assign=assign or {})


def status_of(run: Run) -> str:
    """Return the status of a run; empty if the query itself exceeds the time limit of the server."""
    try:
        return run.status
    except OperationalError:
        return ""


@pytest.mark.parametrize("inline_advance", [True, False])
def test_large_report_has_a_time_limit_by_its_size(bench: Bench, inline_advance: bool):
    bench.does(work=return_outputs({"text": BIG}))
    run = bench.start("begin -> work -> say", say=content("done"))

    bench.play(bench.a_worker(inline_advance=inline_advance))

    assert run.status == "succeeded"
    assert run.activation("work").attempt == 1
    assert run.outputs("work")["text"] == BIG


@pytest.mark.parametrize("inline_advance", [True, False])
def test_report_too_large_for_the_database_fails_its_node(
    bench: Bench, inline_advance: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reporter, "MIN_STORE_RATE", 2**40)  # so the time limit does not grow with the size
    bench.does(work=return_outputs({"text": BIG}))
    run = bench.start("begin -> work -> say", say=content("never"))

    with at_work(bench, bench.a_worker(inline_advance=inline_advance)):
        until(lambda: status_of(run) == "failed")

    assert "take the database longer than" in run.row["error"]
    assert "EASEL_LARGE_VALUES" in run.row["error"]
    assert run.activation("work").attempt == 1


def test_small_report_is_repeated_while_the_database_is_busy(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> work -> say", say=content("done"))
    tries: list[object] = []
    store = reporter.Reporter._store

    def store_when_busy(self: Any, payload: Any, **more: Any) -> None:
        tries.append(payload)
        if len(tries) <= 6:
            with self.coordinator.database.transaction() as tx:
                tx.scalar(text("select pg_sleep(5)"))
        store(self, payload, **more)

    monkeypatch.setattr(reporter.Reporter, "_store", store_when_busy)
    bench.play()

    assert run.status == "succeeded"
    assert len(tries) > 6


def test_output_limit_applies_to_everything_that_a_report_stores(bench: Bench):
    worker = bench.a_worker(max_output=1_000)
    bench.does(
        alone=return_outputs({"text": "x" * 900}),
        work=return_outputs({"text": "x" * 600}, {"env.a": "x" * 300, "env.b": "x" * 300}),
    )
    alone = bench.start("begin -> alone -> say", say=content("done"))
    together = bench.start("begin -> work -> say", say=content("never"))

    bench.play(worker)

    assert (alone.status, together.status) == ("succeeded", "failed")
    assert "together larger than 1000 characters" in together.row["error"]
