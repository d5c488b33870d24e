"""A bench for each test, on the module's database."""

from collections.abc import Iterator
from typing import Any

import pytest

from store.db.database import Database
from store.db.pipeline import Pipeline
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
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The statements that this process sends from now on."""
    sent: list[bytes] = []
    send = Pipeline.send

    def listening(self: Pipeline, sql: bytes, *given: Any, **more: Any) -> Any:
        sent.append(sql)
        return send(self, sql, *given, **more)

    monkeypatch.setattr(Pipeline, "send", listening)
    return sent


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that kombu and the client of Redis make between tries from now on, which are not waited for."""
    made: list[float] = []
    for sleep in ("kombu.utils.functional.sleep", "redis.retry.sleep"):
        monkeypatch.setattr(sleep, made.append)
    return made


@pytest.fixture(scope="module")
def one_vendor() -> Iterator[Vendor]:
    """A vendor of models for a module."""
    with vendor() as served:
        yield served


@pytest.fixture
def served(one_vendor: Vendor) -> Vendor:
    """The same, with nothing left of other tests."""
    one_vendor.forget()
    return one_vendor
