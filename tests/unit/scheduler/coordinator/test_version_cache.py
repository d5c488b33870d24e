"""A version is compiled once per process, however many ask for it at once."""

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


def test_version_is_compiled_once_for_threads_that_ask_at_once(monkeypatch: pytest.MonkeyPatch):
    asking, read = Barrier(8), list[Any]()

    def version(_: Transaction, version_id: Any) -> Any:
        read.append(version_id)
        return SimpleNamespace(dsl=DSL)

    def ask(_: int) -> Any:
        asking.wait(5)
        return cache.get(TX, wanted)

    monkeypatch.setattr(versions, "get", version)
    cache, wanted = VersionCache(), uuid4()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))

    assert read == [wanted]
    assert all(compiled is found[0] for compiled in found)


def test_version_that_could_not_be_read_is_read_again(monkeypatch: pytest.MonkeyPatch):
    def away(_: Transaction, version_id: Any) -> Any:
        raise NotFound(f"{version_id}")

    def back(_: Transaction, _id: Any) -> Any:
        return SimpleNamespace(dsl=DSL)

    cache, wanted = VersionCache(), uuid4()
    monkeypatch.setattr(versions, "get", away)
    with pytest.raises(NotFound):
        cache.get(TX, wanted)

    monkeypatch.setattr(versions, "get", back)

    assert cache.get(TX, wanted).canvas.begin == 0
