"""When a process is deaf or stands still, and when it only looks like it."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from types import SimpleNamespace

import pytest
from celery.signals import celeryd_after_setup
from celery.worker import state
from hypothesis import given
from hypothesis import strategies as st

from scheduler.health import watchdog
from scheduler.health.broker_probe import BrokerProbe
from scheduler.health.watchdog import LOCK_HELD, BrokerHealthCheck, Heartbeat, Watchdog
from scheduler.messaging.celery_app import SELF_PROBE, make_app

EVERY, DEAF_AFTER = 5.0, 30.0


@dataclass
class Surroundings:
    """What an ear hangs on: a broker that is there or away, and threads that are free or taken."""

    broker_is_there: bool = True
    is_full: bool = False
    sent: int = 0
    ear: BrokerHealthCheck = field(init=False)

    def __post_init__(self) -> None:
        self.ear = BrokerHealthCheck(self._send, lambda: self.is_full, DEAF_AFTER)

    def _send(self) -> bool:
        self.sent += self.broker_is_there
        return self.broker_is_there

    def looks(self, times: int, *, meanwhile: Callable[[], object] = lambda: None) -> list[str]:
        """Reasons to end, of so many looks; `meanwhile` is what happens before each."""
        reasons: list[str] = []
        for _ in range(times):
            meanwhile()
            reason = self.ear.check(EVERY)
            if reason is not None:
                reasons.append(reason)
        return reasons


@pytest.fixture
def process() -> Surroundings:
    return Surroundings()


def test_process_that_receives_none_of_its_messages_fails_its_check_after_a_while(process: Surroundings) -> None:
    for_now = process.looks(7)
    at_last = process.looks(1)

    assert for_now == []
    assert at_last == ["it has received none of its own messages for 35 s, while the broker accepts them"]
    assert process.sent == 7


def test_process_that_receives_now_and_then_passes_the_check(process: Surroundings) -> None:
    turn = iter(range(1000))

    reasons = process.looks(100, meanwhile=lambda: next(turn) % 5 or process.ear.mark_received())

    assert reasons == []


def test_unreachable_broker_does_not_fail_the_check(process: Surroundings) -> None:
    process.looks(5)
    process.broker_is_there = False

    while_away = process.looks(100)
    process.broker_is_there = True
    for_now, at_last = process.looks(7), process.looks(1)

    assert (while_away, for_now, len(at_last)) == ([], [], 1)


def test_full_process_sends_no_messages_and_passes_the_check(process: Surroundings) -> None:
    process.looks(5)
    sent, process.is_full = process.sent, True

    while_full = process.looks(100)

    assert (while_full, process.sent) == ([], sent)


@given(st.lists(st.sampled_from(["heard", "full", "away", "silence"]), max_size=60))
def test_only_uninterrupted_missing_time_counts(happens: list[str]) -> None:
    process, silent, is_expecting = Surroundings(), 0.0, False
    for what in happens:
        process.is_full, process.broker_is_there = what == "full", what != "away"
        if what == "heard":
            process.ear.mark_received()

        is_deaf = process.ear.check(EVERY) is not None

        silent = silent + EVERY if is_expecting and what in ("silence", "away") else 0.0
        is_expecting = what in ("silence", "heard")  # something was sent at this look
        assert is_deaf == (silent > DEAF_AFTER)
        if is_deaf:
            return


def test_loop_without_progress_fails_its_check() -> None:
    beat = Heartbeat("the sweeper", max_interval=3.0)

    first = [beat.check(1.0) for _ in range(3)]
    beat.beat()
    second = [beat.check(1.0) for _ in range(4)]

    assert first == [None, None, None]
    assert second == [None, None, None, "the sweeper has made no progress for 4 s"]


@pytest.mark.parametrize(
    ("reserved", "in_hand", "left_behind", "is_full"),
    [(1, 1, 0, False), (2, 2, 0, True), (0, 2, 0, True), (2, 1, 1, True), (0, 1, 1, True), (2, 0, 2, False)],
    ids=[
        "has room",
        "full",
        "full, and Celery has forgotten it with its connection",
        "half of it left behind",
        "half of it left behind, and Celery has forgotten it",
        "lost",
    ],
)
def test_a_process_is_full_while_any_of_its_threads_has_work(
    monkeypatch: pytest.MonkeyPatch, reserved: int, in_hand: int, left_behind: int, is_full: bool
) -> None:
    app = make_app("redis://nowhere")
    hearing = BrokerProbe(
        app,
        every=5,
        unresponsive_after=30,
        ends=lambda _: None,
        in_flight=lambda: in_hand,
        abandoned=lambda: left_behind,
    )
    monkeypatch.setattr(state, "reserved_requests", range(reserved))

    celeryd_after_setup.send(sender="here", instance=SimpleNamespace(app=app, concurrency=2), conf=app.conf)

    assert hearing.is_full() is is_full


def test_what_a_process_sends_to_itself_does_not_show_in_flower() -> None:
    app = make_app("redis://nowhere")

    BrokerProbe(app, every=5, unresponsive_after=30, ends=lambda _: None)

    assert not app.tasks[SELF_PROBE].send_events


class Seen:
    """A sign that fails at its third look, and what was seen of time until then."""

    def __init__(self, pause: float = 0.0) -> None:
        self.passed: list[float] = []
        self._pause = pause

    def check(self, passed: float) -> str | None:
        self.passed.append(passed)
        time.sleep(self._pause)
        return "it stands still" if len(self.passed) == 3 else None


def test_watchdog_reports_a_failed_check_once() -> None:
    ended, reasons = Event(), list[str]()

    def end(reason: str) -> None:
        reasons.append(reason)
        ended.set()

    Watchdog(Seen(), every=0.005, ends=end).start()

    assert ended.wait(5)
    assert reasons == ["it stands still"]


def test_watchdog_continues_after_a_check_that_raises() -> None:
    ended, looks = Event(), list[float]()

    class Raising:
        def check(self, passed: float) -> str | None:
            looks.append(passed)
            if len(looks) < 3:
                raise RuntimeError("the broker answers nonsense")
            return "it stands still"

    Watchdog(Raising(), every=0.005, ends=lambda reason: ended.set()).start()

    assert ended.wait(5)
    assert len(looks) == 3


def test_a_message_whose_sending_raises_is_not_waited_for() -> None:
    def send() -> bool:
        raise RuntimeError("the broker answers nonsense")

    ear = BrokerHealthCheck(lambda: True, lambda: False, DEAF_AFTER)
    ear.check(EVERY)
    ear.send = send

    for _ in range(100):
        with pytest.raises(RuntimeError):
            ear.check(EVERY)


def test_time_while_the_process_was_stopped_does_not_count() -> None:
    ended, sign = Event(), Seen(pause=0.05)

    Watchdog(sign, every=0.01, ends=lambda reason: ended.set()).start()

    assert ended.wait(5)
    assert max(sign.passed) <= 2 * 0.01


def test_a_process_that_gives_up_ends_with_its_own_code_even_if_giving_back_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(watchdog.os, "_exit", codes.append)
    monkeypatch.setattr(watchdog.logging, "shutdown", lambda: None)

    watchdog.exit_for_restart("it stands still", lambda: time.sleep(5), within=0.01)

    assert codes == [75]


# -- a lock that nobody gives back ------------------------------------------------------------------------------------
HOLDING = "re.match(r'(a+)+$', 'a' * 64 + 'b')"  # one call in C that takes years
LETTING_GO = "time.sleep(1.5 * after)"


def ended(work: str, *, after: float) -> subprocess.CompletedProcess[str]:
    """A process with a watchdog, once it has ended."""
    program = f"""
import re, threading, time
from scheduler.health.watchdog import LockWatchdog
after = {after}
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
watchdog = LockWatchdog(after, every=after / 20)
watchdog.start()
{work}
watchdog.stop()
time.sleep(1.5 * after)
print("alive")
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)


def test_a_process_in_which_one_call_keeps_the_interpreters_lock_ends_and_says_where():
    process = ended(HOLDING, after=0.5)

    assert process.returncode == LOCK_HELD
    assert process.stdout == ""
    assert "Timeout" in process.stderr
    assert "re/__init__.py" in process.stderr


def test_a_process_whose_threads_run_is_left_alone_and_so_is_one_that_watches_no_more():
    process = ended(LETTING_GO, after=2.0)

    assert (process.returncode, process.stdout) == (0, "alive\n"), process.stderr
