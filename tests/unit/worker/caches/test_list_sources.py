"""The cache of the lists that Iterations go through."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from store.runs.values import StoredValue
from worker.caches.list_sources import MIN_CACHED_SIZE, ListCache
from worker.caches.lru_cache import size_of

RUN = UUID("01890000-0000-7000-8000-000000000001")
LONG = ["x" * MIN_CACHED_SIZE]


def stored_value(value: Any) -> StoredValue:
    return StoredValue(b"\0", uuid4(), value)


def test_list_is_cached_after_the_first_read():
    lists, long = ListCache(), stored_value(LONG)

    lists.put_list(RUN, "list", long)

    assert lists.get_lists(RUN, ["list", "other"]) == {"list": long}
    assert lists.get_lists(uuid4(), ["list"]) == {}


def test_newer_list_of_the_same_source_replaces_the_cached_one():
    lists, newer = ListCache(), stored_value(LONG * 2)

    lists.put_list(RUN, "list", stored_value(LONG))
    lists.put_list(RUN, "list", newer)

    assert lists.get_lists(RUN, ["list"]) == {"list": newer}


def test_short_and_very_large_lists_are_not_cached():
    lists = ListCache(max_size=3 * MIN_CACHED_SIZE)

    lists.put_list(RUN, "short", stored_value(["x"]))
    lists.put_list(RUN, "huge", stored_value(LONG * 4))

    assert lists.get_lists(RUN, ["short", "huge"]) == {}


def test_a_cache_of_size_0_caches_nothing():
    lists = ListCache(0)

    lists.put_list(RUN, "list", stored_value(LONG))

    assert lists.get_lists(RUN, ["list"]) == {}


def test_least_recently_used_list_is_removed_first():
    lists = ListCache(max_size=5 * MIN_CACHED_SIZE // 2)
    for name in ("one", "two"):
        lists.put_list(RUN, name, stored_value(LONG))
    lists.get_lists(RUN, ["one"])

    lists.put_list(RUN, "three", stored_value(LONG))

    assert sorted(lists.get_lists(RUN, ["one", "two", "three"])) == ["one", "three"]


@pytest.mark.parametrize(("value", "weight"), [(None, 8), ("abc", 11), (["abc", 1], 27), ({"key": ["ab"]}, 29)])
def test_size_of_a_value_counts_its_texts_and_each_part(value: Any, weight: int):
    assert size_of(value, 1000) == weight


def test_size_is_not_counted_above_the_maximum():
    assert 100 < size_of(["x" * 60] * 1000, 100) < 1000
