"""Echoes: few of them, the last number of each run, and nobody's end is kept back."""

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
PATIENCE = 10.0  # seconds for what another thread does
FOR_EVER = 600.0


@dataclass
class Heard:
    """Stands where Redis is, and takes what is sent as soon as a test lets it."""

    sendings: list[list[EventNotification]] = field(default_factory=list)
    _free: threading.Event = field(default_factory=threading.Event)
    _came: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, sent: Sequence[EventNotification]) -> None:
        with self._came:
            self.sendings.append(sorted(sent, key=lambda echo: echo.run_id))
            self._came.notify_all()
        assert self._free.wait(PATIENCE)

    def let_go(self) -> None:
        self._free.set()

    def waited_for(self, sendings: int) -> list[list[EventNotification]]:
        with self._came:
            assert self._came.wait_for(lambda: len(self.sendings) >= sendings, PATIENCE)
        return self.sendings


@pytest.fixture
def heard() -> Iterator[Heard]:
    heard = Heard()
    yield heard
    heard.let_go()


@pytest.fixture
def a_sender() -> Iterator[Callable[[Callable[[Sequence[EventNotification]], object]], EventNotifier]]:
    made: list[EventNotifier] = []

    def make(send: Callable[[Sequence[EventNotification]], object]) -> EventNotifier:
        made.append(EventNotifier(send))
        return made[-1]

    yield make
    for each in made:
        each.close()


Make = Callable[[Callable[[Sequence[EventNotification]], object]], EventNotifier]


def test_last_number_of_a_run_replaces_earlier_ones(a_sender: Make, heard: Heard):
    sender = a_sender(heard)
    sender.add(EventNotification(ONE, 1))
    heard.waited_for(1)

    for number in (2, 3, 4):
        sender.add(EventNotification(ONE, number))
    sender.add(EventNotification(TWO, 7))
    heard.let_go()

    assert heard.waited_for(2) == [[EventNotification(ONE, 1)], [EventNotification(ONE, 4), EventNotification(TWO, 7)]]


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1))
def test_an_end_and_the_highest_number_are_never_lost_in_what_order_they_come(told: list[tuple[int, bool]]):
    whole: EventNotification | None = None
    for number, is_over in told:
        whole = EventNotification(ONE, number, is_over).merge(whole)

    assert whole == EventNotification(ONE, max(number for number, _ in told), any(is_over for _, is_over in told))


def test_what_comes_right_behind_a_sending_waits_and_the_end_of_a_run_takes_it_along(
    a_sender: Make, heard: Heard, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_notifier, "BATCH_INTERVAL", FOR_EVER)
    sender = a_sender(heard)
    heard.let_go()
    sender.add(EventNotification(ONE, 1))
    heard.waited_for(1)

    sender.add(EventNotification(ONE, 2))
    sender.add(EventNotification(ONE, 3))
    sender.add(EventNotification(TWO, 9, is_over=True))

    assert heard.waited_for(2) == [
        [EventNotification(ONE, 1)],
        [EventNotification(ONE, 3), EventNotification(TWO, 9, is_over=True)],
    ]


def test_what_waits_leaves_after_a_moment_although_nothing_more_happens(a_sender: Make, heard: Heard):
    sender = a_sender(heard)
    heard.let_go()
    sender.add(EventNotification(ONE, 1))
    heard.waited_for(1)

    sender.add(EventNotification(ONE, 2))

    assert heard.waited_for(2)[1] == [EventNotification(ONE, 2)]


def test_many_notifications_within_a_moment_are_one_batch(
    a_sender: Make, heard: Heard, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_notifier, "BATCH_INTERVAL", FOR_EVER)
    sender = a_sender(heard)
    heard.let_go()
    sender.add(EventNotification(ONE, 1))
    heard.waited_for(1)

    for number in range(2, 1000):
        sender.add(EventNotification(ONE, number))
    sender.close()

    assert heard.sendings == [[EventNotification(ONE, 1)], [EventNotification(ONE, 999)]]


def test_close_sends_pending_notifications_and_ends_the_thread(
    a_sender: Make, heard: Heard, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_notifier, "BATCH_INTERVAL", FOR_EVER)
    sender = a_sender(heard)
    heard.let_go()
    sender.add(EventNotification(ONE, 1))
    heard.waited_for(1)
    sender.add(EventNotification(ONE, 2))

    sender.close()
    sender.close()

    assert heard.sendings[1:] == [[EventNotification(ONE, 2)]]


def test_close_without_pending_notifications_ends_at_once(a_sender: Make, heard: Heard):
    sender = a_sender(heard)

    sender.close()
    sender.add(EventNotification(ONE, 1))

    assert heard.sendings == []


def test_failed_batch_is_logged_and_the_next_one_is_sent(a_sender: Make, heard: Heard):
    heard.let_go()

    def send(sent: Sequence[EventNotification]) -> None:
        heard(sent)
        if len(heard.sendings) == 1:
            raise ValueError("not a word")

    sender = a_sender(send)
    with capture_logs() as logs:
        sender.add(EventNotification(ONE, 1))
        heard.waited_for(1)
        sender.add(EventNotification(ONE, 2))
        heard.waited_for(2)

    assert heard.sendings == [[EventNotification(ONE, 1)], [EventNotification(ONE, 2)]]
    assert [line["event"] for line in logs] == ["event_notifications_not_sent"]
