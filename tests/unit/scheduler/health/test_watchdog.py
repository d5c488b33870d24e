"""When a process is unresponsive or makes no progress, and when it only seems so."""

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

EVERY, UNRESPONSIVE_AFTER = 5.0, 30.0


@dataclass
class CheckedProcess:
    """A broker health check with a fake broker and fake threads."""

    is_broker_reachable: bool = True
    is_full: bool = False
    sent: int = 0
    health_check: BrokerHealthCheck = field(init=False)

    def __post_init__(self) -> None:
        self.health_check = BrokerHealthCheck(self._send, lambda: self.is_full, UNRESPONSIVE_AFTER)

    def _send(self) -> bool:
        self.sent += self.is_broker_reachable
        return self.is_broker_reachable

    def run_checks(self, times: int, *, meanwhile: Callable[[], object] = lambda: None) -> list[str]:
        """Run the check `times` times and return its reasons to end; call `meanwhile` before each check."""
        reasons: list[str] = []
        for _ in range(times):
            meanwhile()
            reason = self.health_check.check(EVERY)
            if reason is not None:
                reasons.append(reason)
        return reasons


@pytest.fixture
def process() -> CheckedProcess:
    return CheckedProcess()


def test_process_that_receives_none_of_its_messages_fails_its_check_after_a_while(process: CheckedProcess) -> None:
    for_now = process.run_checks(7)
    at_last = process.run_checks(1)

    assert for_now == []
    assert at_last == ["it has received none of its own messages for 35 s, while the broker accepts them"]
    assert process.sent == 7


def test_process_that_receives_now_and_then_passes_the_check(process: CheckedProcess) -> None:
    counter = iter(range(1000))

    reasons = process.run_checks(100, meanwhile=lambda: next(counter) % 5 or process.health_check.mark_received())

    assert reasons == []


def test_unreachable_broker_does_not_fail_the_check(process: CheckedProcess) -> None:
    process.run_checks(5)
    process.is_broker_reachable = False

    while_away = process.run_checks(100)
    process.is_broker_reachable = True
    for_now, at_last = process.run_checks(7), process.run_checks(1)

    assert (while_away, for_now, len(at_last)) == ([], [], 1)


def test_full_process_sends_no_messages_and_passes_the_check(process: CheckedProcess) -> None:
    process.run_checks(5)
    sent, process.is_full = process.sent, True

    while_full = process.run_checks(100)

    assert (while_full, process.sent) == ([], sent)


@given(st.lists(st.sampled_from(["received", "full", "unreachable", "missing"]), max_size=60))
def test_only_uninterrupted_time_without_messages_counts(events: list[str]) -> None:
    process, missing_seconds, is_expecting = CheckedProcess(), 0.0, False
    for event in events:
        process.is_full, process.is_broker_reachable = event == "full", event != "unreachable"
        if event == "received":
            process.health_check.mark_received()

        has_failed = process.health_check.check(EVERY) is not None

        missing_seconds = missing_seconds + EVERY if is_expecting and event in ("missing", "unreachable") else 0.0
        is_expecting = event in ("missing", "received")  # this check has sent a message
        assert has_failed == (missing_seconds > UNRESPONSIVE_AFTER)
        if has_failed:
            return


def test_loop_without_progress_fails_its_check() -> None:
    beat = Heartbeat("the sweeper", max_interval=3.0)

    first = [beat.check(1.0) for _ in range(3)]
    beat.beat()
    second = [beat.check(1.0) for _ in range(4)]

    assert first == [None, None, None]
    assert second == [None, None, None, "the sweeper has made no progress for 4 s"]


@pytest.mark.parametrize(
    ("reserved", "in_flight", "abandoned", "is_full"),
    [(1, 1, 0, False), (2, 2, 0, True), (0, 2, 0, True), (2, 1, 1, True), (0, 1, 1, True), (2, 0, 2, False)],
    ids=[
        "has room",
        "full",
        "full, and Celery has forgotten it with its connection",
        "half abandoned",
        "half abandoned, and Celery has forgotten it",
        "lost",
    ],
)
def test_a_process_is_full_while_any_of_its_threads_has_work(
    monkeypatch: pytest.MonkeyPatch, reserved: int, in_flight: int, abandoned: int, is_full: bool
) -> None:
    app = make_app("redis://nowhere")
    probe = BrokerProbe(
        app,
        every=5,
        unresponsive_after=30,
        ends=lambda _: None,
        in_flight=lambda: in_flight,
        abandoned=lambda: abandoned,
    )
    monkeypatch.setattr(state, "reserved_requests", range(reserved))

    celeryd_after_setup.send(sender="here", instance=SimpleNamespace(app=app, concurrency=2), conf=app.conf)

    assert probe.is_full() is is_full


def test_self_probe_sends_no_task_events() -> None:
    app = make_app("redis://nowhere")

    BrokerProbe(app, every=5, unresponsive_after=30, ends=lambda _: None)

    assert not app.tasks[SELF_PROBE].send_events


class FailingCheck:
    """A check that fails at its third call, and records the elapsed times."""

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

    Watchdog(FailingCheck(), every=0.005, ends=end).start()

    assert ended.wait(30)
    assert reasons == ["it stands still"]


def test_watchdog_continues_after_a_check_that_raises() -> None:
    ended, calls = Event(), list[float]()

    class Raising:
        def check(self, passed: float) -> str | None:
            calls.append(passed)
            if len(calls) < 3:
                raise RuntimeError("the broker answers nonsense")
            return "it stands still"

    Watchdog(Raising(), every=0.005, ends=lambda reason: ended.set()).start()

    assert ended.wait(30)
    assert len(calls) == 3


def test_message_that_could_not_be_sent_is_not_awaited() -> None:
    def send() -> bool:
        raise RuntimeError("the broker answers nonsense")

    health_check = BrokerHealthCheck(lambda: True, lambda: False, UNRESPONSIVE_AFTER)
    health_check.check(EVERY)
    health_check.send = send

    for _ in range(100):
        with pytest.raises(RuntimeError):
            health_check.check(EVERY)


def test_time_while_the_process_was_stopped_does_not_count() -> None:
    ended, check = Event(), FailingCheck(pause=0.05)

    Watchdog(check, every=0.01, ends=lambda reason: ended.set()).start()

    assert ended.wait(30)
    assert max(check.passed) <= 2 * 0.01


def test_exit_for_restart_has_its_own_exit_code_even_if_the_release_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(watchdog.os, "_exit", codes.append)
    monkeypatch.setattr(watchdog.logging, "shutdown", lambda: None)

    watchdog.exit_for_restart("it stands still", lambda: time.sleep(5), within=0.01)

    assert codes == [75]


# -- the interpreter lock ----------------------------------------------------------------------------------------------
HOLD_LOCK = "re.match(r'(a+)+$', 'a' * 64 + 'b')"  # one call in C that takes years
RELEASE_LOCK = "time.sleep(1.5 * after)"


def run_with_lock_watchdog(work: str, *, after: float) -> subprocess.CompletedProcess[str]:
    """Run a process with a lock watchdog until it ends."""
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


def test_process_with_a_held_interpreter_lock_ends_and_prints_its_stack():
    process = run_with_lock_watchdog(HOLD_LOCK, after=0.5)

    assert process.returncode == LOCK_HELD
    assert process.stdout == ""
    assert "Timeout" in process.stderr
    assert "re/__init__.py" in process.stderr


def test_lock_watchdog_does_not_end_a_process_with_running_threads_or_after_its_stop():
    process = run_with_lock_watchdog(RELEASE_LOCK, after=2.0)

    assert (process.returncode, process.stdout) == (0, "alive\n"), process.stderr
