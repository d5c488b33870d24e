"""A locally continued activation is an ordinary task in the events, signals and inspection of Celery."""

import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, signals
from celery.events.receiver import EventReceiver
from pydantic import SecretStr
from structlog.testing import capture_logs

import local_engine
from canvas.outcome import Finished
from components.context import NodeContext
from scheduler.messaging.celery_app import EXECUTE, NODES, QUEUE_PROBE, make_app
from scheduler.messaging.celery_message import encode_message
from scheduler.sweeper import sweeper
from settings import Settings
from tests.builders import content
from tests.integration.engine import WAIT_TIMEOUT, Bench, Run, until
from worker.fastpath import inline_tasks

pytestmark = pytest.mark.usefixtures("local_continuation")

LEASE = timedelta(seconds=1)
LONG = 1000  # nodes; a thousand frames are more than Python allows

CeleryWorker = Callable[..., AbstractContextManager[local_engine.Engine]]


@pytest.fixture
def celery_worker(bench: Bench, tmp_path: Path) -> CeleryWorker:
    """A Celery worker with a thread pool, which executes the runs of the bench."""

    @contextmanager
    def run_worker(**more: Any) -> Generator[local_engine.Engine]:
        settings = Settings(home=tmp_path, secret_key=SecretStr("a secret that is long"), **more)
        with local_engine.run_engine(settings, bench.database.url, bench.redis_url, threads=4) as engine:
            bench.lifecycle = engine.lifecycle
            yield engine

    return run_worker


# -- events, signals, inspection -------------------------------------------------------------------------------------
def test_celery_events_report_every_node_of_a_chain_under_its_name(
    bench: Bench, celery_worker: CeleryWorker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(local_engine, "make_app", make_app_with_events)
    with celery_worker() as engine, monitor_tasks(engine.app) as monitor:
        run = bench.start("begin -> one -> compute -> say", say=content("done"))
        wait_until_succeeded(run)
        until(lambda: len(monitor.of("task-succeeded")) == 4)

    kinds = ("task-received", "task-started", "task-succeeded")
    names = ("node:Begin", "node:Act", "node:Compute", "node:Message")
    assert [(kind, name) for kind, name, _ in monitor.of(*kinds)] == [(kind, name) for name in names for kind in kinds]
    arguments = [args for kind, _, args in monitor.of("task-received")]
    assert arguments == [repr((str(run.id), str(row.id), row.node_id)) for row in run.activations]
    assert len(monitor.tasks) == 4
    roots = {event["root_id"] for event in monitor.events if "root_id" in event and event["uuid"] in monitor.tasks}
    assert roots == {str(run.id)}


def test_celerys_signals_fire_for_each_node(bench: Bench, celery_worker: CeleryWorker):
    fired: list[tuple[str, str]] = []

    def before(args: tuple[str, ...], sender: Any, **_: Any) -> None:
        fired.extend([("begins", args[1])] if sender.name == EXECUTE else ())

    def after(args: tuple[str, ...], sender: Any, state: str, **_: Any) -> None:
        fired.extend([(state, args[1])] if sender.name == EXECUTE else ())

    with celery_worker(), connected(signals.task_prerun, before), connected(signals.task_postrun, after):
        run = bench.start("begin -> one -> two")
        wait_until_succeeded(run)
        until(lambda: len(fired) == 6)

    assert fired == [(what, str(row.id)) for row in run.activations for what in ("begins", "SUCCESS")]


def test_inspect_shows_only_the_running_node(bench: Bench, celery_worker: CeleryWorker):
    begun, may_end = threading.Event(), threading.Event()

    def works(ctx: NodeContext) -> Finished:
        begun.set()
        assert may_end.wait(WAIT_TIMEOUT)
        return Finished()

    bench.does(compute=works)
    with celery_worker() as engine:
        run = bench.start("begin -> one -> compute -> two")
        assert begun.wait(WAIT_TIMEOUT)
        shown = active_nodes(engine.app)
        may_end.set()
        wait_until_succeeded(run)
        until(lambda: active_nodes(engine.app) == [])

    assert shown == [("node:Compute", [str(run.id), str(run.activation("compute").id)])]


# -- local continuation ----------------------------------------------------------------------------------------------
@pytest.mark.timeout(120)
def test_long_chain_of_inline_tasks_uses_no_deeper_stack(bench: Bench, celery_worker: CeleryWorker):
    depths: list[tuple[int, int]] = []

    def counts(ctx: NodeContext) -> Finished:
        depths.append((threading.get_ident(), stack_depth()))
        return Finished()

    nodes = [f"compute{number}" for number in range(LONG)]
    bench.does(**dict.fromkeys(nodes, counts))
    with celery_worker(continue_locally_for=timedelta(minutes=5)):
        run = bench.start("begin -> " + " -> ".join(nodes))
        until(lambda: run.status == "succeeded", seconds=100)

    assert len(depths) == LONG
    assert len(set(depths)) == 1  # the same thread, at the same stack depth


def test_every_node_is_a_message_if_local_continuation_is_off(bench: Bench, celery_worker: CeleryWorker):
    with celery_worker(continue_locally_for=timedelta(0)) as engine, collect_messages(engine) as messages:
        run = bench.start("begin -> one -> two -> three")
        wait_until_succeeded(run)

    assert messages == [str(row.id) for row in run.activations]


@pytest.mark.parametrize("fetches", [True, False])
def test_thread_fetches_its_next_message_with_its_last_send(bench: Bench, celery_worker: CeleryWorker, fetches: bool):
    fetched: list[bool] = []

    def receives(request: Any, sender: Any, **_: Any) -> None:
        fetched.extend([sender is request.app] if request.task.name == EXECUTE else ())

    settings = {"continue_locally_for": timedelta(0), "fetch_next": fetches}
    with celery_worker(**settings), connected(signals.task_received, receives):
        run = bench.start("begin -> one -> compute -> two")
        wait_until_succeeded(run)

    assert fetched == [False, fetches, fetches, fetches]


def test_thread_fetches_no_message_while_the_worker_does_not_consume_the_queue(
    bench: Bench, celery_worker: CeleryWorker
):
    def cancel_consumer(ctx: NodeContext) -> Finished:
        app.control.cancel_consumer(NODES, reply=True, limit=1, timeout=WAIT_TIMEOUT)
        return Finished()

    bench.does(compute=cancel_consumer)
    with celery_worker(continue_locally_for=timedelta(0)) as engine:
        app = engine.app
        run = bench.start("begin -> compute -> two")
        until(lambda: run.statuses.get("two") == "ready")
        until(lambda: active_nodes(app) == [])
        before = run.statuses
        app.control.add_consumer(NODES, reply=True, limit=1, timeout=WAIT_TIMEOUT)
        wait_until_succeeded(run)

    assert before["two"] == "ready"


def test_fetched_message_of_another_task_is_executed_by_celery(bench: Bench, celery_worker: CeleryWorker):
    returned: list[str] = []

    def send_probe(ctx: NodeContext) -> Finished:
        bus.push_tasks(NODES, [encode_message(QUEUE_PROBE, ("2026-01-01T00:00:00Z",), NODES)] * 3)
        return Finished()

    def receives(request: Any, **_: Any) -> None:
        returned.extend([request.args[0]] if request.task.name == QUEUE_PROBE else ())

    bench.does(**dict.fromkeys(("compute1", "compute2", "compute3"), send_probe))
    with celery_worker(continue_locally_for=timedelta(0)) as engine, connected(signals.task_received, receives):
        bus = engine.coordinator.dispatch.bus
        run = bench.start("begin -> compute1 -> compute2 -> compute3 -> last")
        wait_until_succeeded(run)
        until(lambda: returned.count("2026-01-01T00:00:00Z") == 9)


def test_chain_needs_one_message_if_local_continuation_is_on(bench: Bench, celery_worker: CeleryWorker):
    with celery_worker() as engine, collect_messages(engine) as messages:
        run = bench.start("begin -> one -> two -> three")
        wait_until_succeeded(run)

    assert messages == [str(run.activation("begin").id)]


@pytest.mark.parametrize("what", ["task_headers", "apply_target"])
def test_inline_task_that_cannot_begin_is_executed_after_its_lease_expires(
    bench: Bench, celery_worker: CeleryWorker, monkeypatch: pytest.MonkeyPatch, what: str
):
    tries: list[Any] = []
    original = getattr(inline_tasks, what)

    def fail_once(*args: Any) -> Any:
        tries.append(args)
        if len(tries) > 1:
            return original(*args)
        if what == "task_headers":
            raise LookupError("no headers")
        return None  # no task was begun

    monkeypatch.setattr(inline_tasks, what, fail_once)
    monkeypatch.setattr(sweeper, "MIN_UNINTERRUPTED", 1.0)
    with capture_logs() as logs, celery_worker(lease=LEASE, renew_every=LEASE / 4):
        run = bench.start("begin -> one -> two")
        wait_until_succeeded(run)

    assert [line["log_level"] for line in logs if line["event"] == "continuation_failed"] == ["error"]
    assert [(row.node_id, row.attempt) for row in run.activations] == [("begin", 1), ("one", 2), ("two", 1)]


# -- helpers ---------------------------------------------------------------------------------------------------------
def wait_until_succeeded(run: Run) -> None:
    until(lambda: run.status == "succeeded")


def make_app_with_events(*args: Any, **more: Any) -> Celery:
    """Return an app whose worker can send events, as one that the command line starts."""
    app: Any = make_app(*args, **more)
    controller = app.WorkController
    app.WorkController = lambda **options: controller(**{**options, "without_heartbeat": False})
    return app


@dataclass
class TaskMonitor:
    """The task events that a monitor has received."""

    events: list[Mapping[str, Any]] = field(default_factory=list)

    def of(self, *kinds: str) -> list[tuple[str, str, str]]:
        """Return (kind, name, arguments) of the events of node tasks, in their order."""
        received = {event["uuid"]: event for event in self.events if event["type"] == "task-received"}
        events = [event for event in self.events if event["type"] in kinds and event["uuid"] in self.tasks]
        of_tasks = [(event["type"], received[event["uuid"]]) for event in sorted(events, key=itemgetter("clock"))]
        return [(kind, task["name"], task["args"]) for kind, task in of_tasks]

    @property
    def tasks(self) -> set[str]:
        """The ids of the tasks of nodes."""
        received = [event for event in self.events if event["type"] == "task-received"]
        return {event["uuid"] for event in received if event["name"].startswith("node:")}


@contextmanager
def monitor_tasks(app: Celery) -> Generator[TaskMonitor]:
    """Receive the task events of the worker until the block ends, as Flower does."""
    monitor, stop = TaskMonitor(), threading.Event()

    def listen() -> None:
        with app.connection_for_read() as connection:
            receiver: Any = EventReceiver(connection, handlers={"*": monitor.events.append}, app=app)
            for _ in receiver.itercapture(limit=None, timeout=None, wakeup=False):
                if stop.is_set():
                    return

    def has_events() -> bool:
        app.control.disable_events(reply=True, limit=1)
        app.control.enable_events(reply=True, limit=1)
        return bool(monitor.events)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        until(has_events)
        yield monitor
    finally:
        stop.set()
        has_events()  # wakes the listener
        thread.join(WAIT_TIMEOUT)


@contextmanager
def connected(signal: Any, receiver: Callable[..., None]) -> Generator[None]:
    signal.connect(receiver)
    yield
    signal.disconnect(receiver)


@contextmanager
def collect_messages(engine: local_engine.Engine) -> Generator[list[str]]:
    """Collect the activations for which the worker received a task message."""
    messages: list[str] = []

    def receives(request: Any, **_: Any) -> None:
        messages.extend([request.args[1]] if request.task.name == EXECUTE else ())

    with connected(signals.task_received, receives):
        yield messages


def active_nodes(app: Celery) -> list[tuple[str, list[str]]]:
    """Return (name, arguments) of the node tasks that the worker reports as active."""
    answers = app.control.inspect(limit=1, timeout=WAIT_TIMEOUT).active()
    tasks = [task for active in (answers or {}).values() for task in active]
    return [(task["name"], list(task["args"])) for task in tasks if task["name"].startswith("node:")]


def stack_depth() -> int:
    """Return the stack depth of this thread, in frames."""
    frame, frames = sys._getframe(), 0
    while frame is not None:
        frame, frames = frame.f_back, frames + 1
    return frames
