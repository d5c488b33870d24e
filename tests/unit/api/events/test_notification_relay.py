"""The relay of notifications to clients: what is joined, and when it is passed on."""

import pytest

from api.events.notification_relay import NotificationRelay

TEXT, EVENTS = 0.05, 0.25  # seconds


@pytest.fixture
def relay() -> NotificationRelay:
    return NotificationRelay(TEXT, EVENTS)


def text(offset: int, text: str, stream: str = "a", epoch: int = 1) -> dict[str, object]:
    return {"t": stream, "ep": epoch, "o": offset, "x": text}


def test_first_notification_after_a_pause_is_passed_on_at_once(relay: NotificationRelay) -> None:
    relay.add({"n": 1})
    relay.add(text(0, "x"))

    assert relay.due_at == 0.0
    assert relay.take_due(10.0) == [text(0, "x"), {"n": 1}]
    assert relay.due_at is None


def test_events_of_an_interval_are_one_notification_of_the_last(relay: NotificationRelay) -> None:
    relay.add({"n": 1})
    relay.take_due(10.0)
    for notification in ({"n": 2}, {"n": 4, "over": True}, {"n": 3}):
        relay.add(notification)

    assert relay.due_at == 10.0 + EVENTS
    assert relay.take_due(10.0 + EVENTS / 2) == []
    assert relay.take_due(10.0 + EVENTS) == [{"n": 4, "over": True}]


def test_adjacent_texts_of_a_stream_are_joined(relay: NotificationRelay) -> None:
    for delta in (text(0, "ab"), text(2, "c"), text(4, "e"), text(5, "f", epoch=2), text(6, "g", "b", 2)):
        relay.add(delta)

    assert relay.take_due(0.0) == [text(0, "abc"), text(4, "e"), text(5, "f", epoch=2), text(6, "g", "b", 2)]


def test_text_does_not_wait_for_events(relay: NotificationRelay) -> None:
    relay.add({"n": 1})
    relay.add(text(0, "a"))
    relay.take_due(10.0)
    relay.add({"n": 2})
    relay.add(text(1, "b"))

    assert relay.due_at == 10.0 + TEXT
    assert relay.take_due(10.0 + TEXT) == [text(1, "b")]
    assert relay.due_at == 10.0 + EVENTS


@pytest.mark.parametrize("unknown", [{}, {"t": 5}, {"n": "x"}])
def test_unknown_notification_is_passed_on_as_one_that_has_missed_something(
    relay: NotificationRelay, unknown: dict[str, object]
) -> None:
    relay.add(unknown)
    relay.add(unknown)

    assert relay.take_due(0.0) == [{}]
