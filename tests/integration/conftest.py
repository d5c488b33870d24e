"""Fixtures: a bench and the command `easel` on the module's database, recorded statements, a vendor of models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from store.db.database import Database
from store.db.pipeline import Pipeline
from tests.integration.command_line import Easel, easel_on
from tests.integration.engine import Bench, bench_on
from tests.integration.knowledge_bases import Vendor, vendor


@pytest.fixture(scope="module")
def database(module_database_url: str) -> Iterator[Database]:
    database = Database(module_database_url)
    yield database
    database.close()


@pytest.fixture
def bench(database: Database, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with bench_on(database, redis_url, monkeypatch) as bench:
        yield bench


@pytest.fixture
def easel(
    database: Database,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Easel]:
    """Run commands in the process of the test, with the database of the test and a home of its own."""
    with easel_on(database, redis_url, tmp_path, monkeypatch, capsys) as run:
        yield run


@pytest.fixture
def sent_statements(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Record the statements that this process sends from now on."""
    sent_statements: list[bytes] = []
    send = Pipeline.send

    def record(self: Pipeline, sql: bytes, *args: Any, **kwargs: Any) -> Any:
        sent_statements.append(sql)
        return send(self, sql, *args, **kwargs)

    monkeypatch.setattr(Pipeline, "send", record)
    return sent_statements


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the pauses between retries of kombu and the Redis client, and skip them."""
    pauses: list[float] = []
    for sleep in ("kombu.utils.functional.sleep", "redis.retry.sleep"):
        monkeypatch.setattr(sleep, pauses.append)
    return pauses


@pytest.fixture(scope="module")
def module_vendor() -> Iterator[Vendor]:
    """Run a vendor of models for a module."""
    with vendor() as running:
        yield running


@pytest.fixture
def model_vendor(module_vendor: Vendor) -> Vendor:
    """Return the vendor of the module, without the records of other tests."""
    module_vendor.reset()
    return module_vendor
