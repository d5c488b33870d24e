"""Replies that are shown again for some seconds."""

import threading

import pytest

from api.http.recent_replies import RecentReplies


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_reply_is_computed_again_when_it_is_too_old() -> None:
    clock = Clock()
    replies = RecentReplies[int](10, clock=clock)
    numbers = iter(range(9))

    first = replies.get("a", lambda: next(numbers))
    clock.now = 9.9
    repeated = replies.get("a", lambda: next(numbers))
    clock.now = 10.0
    later = replies.get("a", lambda: next(numbers))

    assert (first, repeated, later) == (0, 0, 1)


def test_each_key_has_its_own_reply() -> None:
    replies = RecentReplies[str](10)

    assert [replies.get(key, lambda key=key: key) for key in ("a", "b", "a")] == ["a", "b", "a"]


def test_oldest_replies_are_dropped_when_there_are_too_many() -> None:
    replies = RecentReplies[int](10, max_entries=2, clock=Clock())
    for key in (1, 2, 3):
        replies.get(key, lambda key=key: key)

    assert [replies.get(key, lambda: 0) for key in (3, 2, 1)] == [3, 2, 0]


def test_error_is_raised_and_not_kept() -> None:
    replies = RecentReplies[int](10)

    with pytest.raises(ZeroDivisionError):
        replies.get("a", lambda: 1 // 0)

    assert replies.get("a", lambda: 1) == 1


def test_threads_that_ask_for_the_same_key_share_one_computation() -> None:
    replies = RecentReplies[int](10)
    has_begun, may_end = threading.Event(), threading.Event()
    computed: list[int] = []
    found: list[int] = []

    def compute() -> int:
        has_begun.set()
        assert may_end.wait(30)
        computed.append(1)
        return len(computed)

    threads = [threading.Thread(target=lambda: found.append(replies.get("a", compute))) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert has_begun.wait(30)
    may_end.set()
    for thread in threads:
        thread.join(10)

    assert found == [1] * 5
    assert not replies._computing
