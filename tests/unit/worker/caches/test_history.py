"""The history cache: nodes of a run share one read, and each gets a copy of its own."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from store.runs.activations import Claim
from worker.caches.history import MAX_HISTORY_SIZE, HistoryCache


@pytest.fixture
def history() -> HistoryCache:
    return HistoryCache()


def claim(upto: int = 3) -> Claim:
    return cast(Claim, SimpleNamespace(run_id=RUN, history_upto=upto))


RUN = uuid4()
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": {"content": "hi"}},
]


def test_history_is_cached_for_other_nodes_of_the_run(history: HistoryCache):
    history.put(claim(), 26, HISTORY)

    assert history.get(claim(), 26) == HISTORY


@pytest.mark.parametrize(("upto", "limit"), [(4, 26), (3, 2)])
def test_history_of_another_turn_or_window_is_not_in_the_cache(history: HistoryCache, upto: int, limit: int):
    history.put(claim(), 26, HISTORY)

    assert history.get(claim(upto), limit) is None


def test_empty_history_is_cached(history: HistoryCache):
    history.put(claim(), 26, [])

    assert history.get(claim(), 26) == []


def test_changing_a_cached_history_changes_no_other_copy(history: HistoryCache):
    history.put(claim(), 26, HISTORY)
    mine: Any = history.get(claim(), 26)

    mine[1]["content"]["content"] = "bye"
    mine.clear()

    assert history.get(claim(), 26) == HISTORY


def test_large_history_is_not_cached(history: HistoryCache):
    history.put(claim(), 26, [{"role": "user", "content": "x" * (MAX_HISTORY_SIZE + 1)}])

    assert history.get(claim(), 26) is None


def test_a_cache_of_size_0_caches_nothing():
    history = HistoryCache(0)

    history.put(claim(), 26, [])

    assert history.get(claim(), 26) is None
