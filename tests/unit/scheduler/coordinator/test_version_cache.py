"""A version is compiled once per process, also for concurrent requests."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from canvas.errors import NotFound
from scheduler.coordinator.version_cache import VersionCache
from store.agents import versions
from store.db.transaction import Transaction

TX = cast(Transaction, None)
DSL = {"components": {"begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": []}}}


def test_version_is_compiled_once_for_concurrent_requests(monkeypatch: pytest.MonkeyPatch):
    barrier, read = Barrier(8), list[Any]()

    def load_version(_: Transaction, version_id: Any) -> Any:
        read.append(version_id)
        return SimpleNamespace(dsl=DSL)

    def get_version(_: int) -> Any:
        barrier.wait(30)
        return cache.get(TX, version_id)

    monkeypatch.setattr(versions, "get", load_version)
    cache, version_id = VersionCache(), uuid4()

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(get_version, range(8)))

    assert read == [version_id]
    assert all(compiled is results[0] for compiled in results)


def test_version_that_could_not_be_read_is_read_again(monkeypatch: pytest.MonkeyPatch):
    def raise_not_found(_: Transaction, version_id: Any) -> Any:
        raise NotFound(f"{version_id}")

    def load_version(_: Transaction, _id: Any) -> Any:
        return SimpleNamespace(dsl=DSL)

    cache, version_id = VersionCache(), uuid4()
    monkeypatch.setattr(versions, "get", raise_not_found)
    with pytest.raises(NotFound):
        cache.get(TX, version_id)

    monkeypatch.setattr(versions, "get", load_version)

    assert cache.get(TX, version_id).canvas.begin == 0
