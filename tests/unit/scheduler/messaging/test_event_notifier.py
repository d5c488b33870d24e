"""Event notifications: few batches, the last number of each run, and the end of a run at once."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from scheduler.messaging import event_notifier
from scheduler.messaging.event_notifier import EventNotification, EventNotifier

ONE, TWO = UUID(int=1), UUID(int=2)
TIMEOUT = 10.0  # seconds for what another thread does
NEVER = 600.0


@dataclass
class FakeRedis:
    """Record the batches that are sent, and block each until a test calls `release`."""

    batches: list[list[EventNotification]] = field(default_factory=list)
    _is_released: threading.Event = field(default_factory=threading.Event)
    _has_batch: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, sent: Sequence[EventNotification]) -> None:
        with self._has_batch:
            self.batches.append(sorted(sent, key=lambda each: each.run_id))
            self._has_batch.notify_all()
        assert self._is_released.wait(TIMEOUT)

    def release(self) -> None:
        self._is_released.set()

    def wait_for_batches(self, count: int) -> list[list[EventNotification]]:
        with self._has_batch:
            assert self._has_batch.wait_for(lambda: len(self.batches) >= count, TIMEOUT)
        return self.batches


@pytest.fixture
def fake_redis() -> Iterator[FakeRedis]:
    fake_redis = FakeRedis()
    yield fake_redis
    fake_redis.release()


@pytest.fixture
def make_notifier() -> Iterator[Callable[[Callable[[Sequence[EventNotification]], object]], EventNotifier]]:
    notifiers: list[EventNotifier] = []

    def make(send: Callable[[Sequence[EventNotification]], object]) -> EventNotifier:
        notifiers.append(EventNotifier(send))
        return notifiers[-1]

    yield make
    for each in notifiers:
        each.close()


MakeNotifier = Callable[[Callable[[Sequence[EventNotification]], object]], EventNotifier]


def test_last_number_of_a_run_replaces_earlier_ones(make_notifier: MakeNotifier, fake_redis: FakeRedis):
    notifier = make_notifier(fake_redis)
    notifier.add(EventNotification(ONE, 1, 1))
    fake_redis.wait_for_batches(1)

    for number in (2, 3, 4):
        notifier.add(EventNotification(ONE, number, number))
    notifier.add(EventNotification(TWO, 7, 7))
    fake_redis.release()

    assert fake_redis.wait_for_batches(2) == [
        [EventNotification(ONE, 1, 1)],
        [EventNotification(ONE, 2, 4), EventNotification(TWO, 7, 7)],
    ]


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1))
def test_merged_notification_spans_all_numbers_and_has_any_end_in_any_order(notifications: list[tuple[int, bool]]):
    merged: EventNotification | None = None
    for number, is_over in notifications:
        merged = EventNotification(ONE, number, number, is_over).merge(merged)

    numbers = [number for number, _ in notifications]
    assert merged == EventNotification(ONE, min(numbers), max(numbers), any(is_over for _, is_over in notifications))


def test_notifications_after_a_batch_wait_and_are_sent_with_the_end_of_a_run(
    make_notifier: MakeNotifier, fake_redis: FakeRedis, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_notifier, "BATCH_INTERVAL", NEVER)
    notifier = make_notifier(fake_redis)
    fake_redis.release()
    notifier.add(EventNotification(ONE, 1, 1))
    fake_redis.wait_for_batches(1)

    notifier.add(EventNotification(ONE, 2, 2))
    notifier.add(EventNotification(ONE, 3, 3))
    notifier.add(EventNotification(TWO, 9, 9, is_over=True))

    assert fake_redis.wait_for_batches(2) == [
        [EventNotification(ONE, 1, 1)],
        [EventNotification(ONE, 2, 3), EventNotification(TWO, 9, 9, is_over=True)],
    ]


def test_end_of_a_run_that_is_added_during_a_batch_is_sent_right_after_it(
    make_notifier: MakeNotifier, fake_redis: FakeRedis, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_notifier, "BATCH_INTERVAL", NEVER)
    notifier = make_notifier(fake_redis)
    notifier.add(EventNotification(ONE, 1, 1))
    fake_redis.wait_for_batches(1)

    notifier.add(EventNotification(TWO, 9, 9, is_over=True))
    fake_redis.release()

    assert fake_redis.wait_for_batches(2)[1] == [EventNotification(TWO, 9, 9, is_over=True)]


def test_waiting_notification_is_sent_after_the_batch_interval(make_notifier: MakeNotifier, fake_redis: FakeRedis):
    notifier = make_notifier(fake_redis)
    fake_redis.release()
    notifier.add(EventNotification(ONE, 1, 1))
    fake_redis.wait_for_batches(1)

    notifier.add(EventNotification(ONE, 2, 2))

    assert fake_redis.wait_for_batches(2)[1] == [EventNotification(ONE, 2, 2)]


def test_many_notifications_within_a_moment_are_one_batch(
    make_notifier: MakeNotifier, fake_redis: FakeRedis, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_notifier, "BATCH_INTERVAL", NEVER)
    notifier = make_notifier(fake_redis)
    fake_redis.release()
    notifier.add(EventNotification(ONE, 1, 1))
    fake_redis.wait_for_batches(1)

    for number in range(2, 1000):
        notifier.add(EventNotification(ONE, number, number))
    notifier.close()

    assert fake_redis.batches == [[EventNotification(ONE, 1, 1)], [EventNotification(ONE, 2, 999)]]


def test_close_sends_pending_notifications_and_ends_the_thread(
    make_notifier: MakeNotifier, fake_redis: FakeRedis, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_notifier, "BATCH_INTERVAL", NEVER)
    notifier = make_notifier(fake_redis)
    fake_redis.release()
    notifier.add(EventNotification(ONE, 1, 1))
    fake_redis.wait_for_batches(1)
    notifier.add(EventNotification(ONE, 2, 2))

    notifier.close()
    notifier.close()

    assert fake_redis.batches[1:] == [[EventNotification(ONE, 2, 2)]]


def test_close_without_pending_notifications_ends_at_once(make_notifier: MakeNotifier, fake_redis: FakeRedis):
    notifier = make_notifier(fake_redis)

    notifier.close()
    notifier.add(EventNotification(ONE, 1, 1))

    assert fake_redis.batches == []


def test_failed_batch_is_logged_and_the_next_one_is_sent(make_notifier: MakeNotifier, fake_redis: FakeRedis):
    fake_redis.release()

    def send(sent: Sequence[EventNotification]) -> None:
        fake_redis(sent)
        if len(fake_redis.batches) == 1:
            raise ValueError("not a word")

    notifier = make_notifier(send)
    with capture_logs() as logs:
        notifier.add(EventNotification(ONE, 1, 1))
        fake_redis.wait_for_batches(1)
        notifier.add(EventNotification(ONE, 2, 2))
        fake_redis.wait_for_batches(2)

    assert fake_redis.batches == [[EventNotification(ONE, 1, 1)], [EventNotification(ONE, 2, 2)]]
    assert [line["event"] for line in logs] == ["event_notifications_not_sent"]
