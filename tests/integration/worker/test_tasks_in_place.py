"""To everyone who watches Celery, a node that a thread goes on with is a task like any other."""

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
from scheduler.messaging.celery_app import EXECUTE, make_app
from scheduler.sweeper import sweeper
from settings import Settings
from tests.builders import says
from tests.integration.engine import PATIENCE, Bench, Run, until
from worker.fastpath import inline_tasks

LEASE = timedelta(seconds=1)
LONG = 1000  # nodes; a thousand frames are more than Python allows

AtWork = Callable[..., AbstractContextManager[local_engine.Engine]]


@pytest.fixture
def celery_at_work(bench: Bench, tmp_path: Path) -> AtWork:
    """A Celery worker with a pool of threads, which carries out what the bench starts."""

    @contextmanager
    def at_work(**given: Any) -> Generator[local_engine.Engine]:
        settings = Settings(home=tmp_path, secret_key=SecretStr("a secret that is long"), **given)
        with local_engine.run_engine(settings, bench.database.url, bench.redis_url, threads=4) as engine:
            bench.lifecycle = engine.lifecycle
            yield engine

    return at_work


# -- what watchers see -----------------------------------------------------------------------------------------------
def test_every_node_of_a_chain_is_received_started_and_done_under_its_name(
    bench: Bench, celery_at_work: AtWork, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(local_engine, "make_app", an_app_that_can_tell)
    with celery_at_work() as engine, watching(engine.app) as watched:
        run = bench.start("begin -> one -> compute -> say", say=says("done"))
        ended(run)
        until(lambda: len(watched.of("task-succeeded")) == 4)

    kinds = ("task-received", "task-started", "task-succeeded")
    names = ("node:Begin", "node:Act", "node:Compute", "node:Message")
    assert [(kind, name) for kind, name, _ in watched.of(*kinds)] == [(kind, name) for name in names for kind in kinds]
    told = [args for kind, _, args in watched.of("task-received")]
    assert told == [repr((str(run.id), str(row.id))) for row in run.activations]
    assert len(watched.tasks) == 4


def test_celerys_signals_fire_for_each_node(bench: Bench, celery_at_work: AtWork):
    fired: list[tuple[str, str]] = []

    def before(args: tuple[str, ...], sender: Any, **_: Any) -> None:
        fired.extend([("begins", args[1])] if sender.name == EXECUTE else ())

    def after(args: tuple[str, ...], sender: Any, state: str, **_: Any) -> None:
        fired.extend([(state, args[1])] if sender.name == EXECUTE else ())

    with celery_at_work(), connected(signals.task_prerun, before), connected(signals.task_postrun, after):
        run = bench.start("begin -> one -> two")
        ended(run)
        until(lambda: len(fired) == 6)

    assert fired == [(what, str(row.id)) for row in run.activations for what in ("begins", "SUCCESS")]


def test_inspect_shows_only_the_running_node(bench: Bench, celery_at_work: AtWork):
    begun, may_end = threading.Event(), threading.Event()

    def works(ctx: NodeContext) -> Finished:
        begun.set()
        assert may_end.wait(PATIENCE)
        return Finished()

    bench.does(compute=works)
    with celery_at_work() as engine:
        run = bench.start("begin -> one -> compute -> two")
        assert begun.wait(PATIENCE)
        shown = at_work_now(engine.app)
        may_end.set()
        ended(run)
        until(lambda: at_work_now(engine.app) == [])

    assert shown == [("node:Compute", [str(run.id), str(run.activation("compute").id)])]


# -- how it goes on --------------------------------------------------------------------------------------------------
@pytest.mark.timeout(120)
def test_long_chain_of_inline_tasks_uses_no_deeper_stack(bench: Bench, celery_at_work: AtWork):
    depths: list[tuple[int, int]] = []

    def counts(ctx: NodeContext) -> Finished:
        depths.append((threading.get_ident(), depth()))
        return Finished()

    nodes = [f"compute{number}" for number in range(LONG)]
    bench.does(**dict.fromkeys(nodes, counts))
    with celery_at_work(continue_locally_for=timedelta(minutes=5)):
        run = bench.start("begin -> " + " -> ".join(nodes))
        until(lambda: run.status == "succeeded", seconds=100)

    assert len(depths) == LONG
    assert len(set(depths)) == 1  # the same thread, as deep as the one before


def test_every_node_is_a_message_if_local_continuation_is_off(bench: Bench, celery_at_work: AtWork):
    with celery_at_work(continue_locally_for=timedelta(0)) as engine, sent(engine) as messages:
        run = bench.start("begin -> one -> two -> three")
        ended(run)

    assert messages == [str(row.id) for row in run.activations]


def test_chain_needs_one_message_if_local_continuation_is_on(bench: Bench, celery_at_work: AtWork):
    with celery_at_work() as engine, sent(engine) as messages:
        run = bench.start("begin -> one -> two -> three")
        ended(run)

    assert messages == [str(run.activation("begin").id)]


@pytest.mark.parametrize("what", ["task_headers", "apply_target"])
def test_inline_task_that_cannot_begin_is_executed_after_its_lease_expires(
    bench: Bench, celery_at_work: AtWork, monkeypatch: pytest.MonkeyPatch, what: str
):
    tries: list[Any] = []
    whole = getattr(inline_tasks, what)

    def fails_once(*given: Any) -> Any:
        tries.append(given)
        if len(tries) > 1:
            return whole(*given)
        if what == "task_headers":
            raise LookupError("no headers")
        return None  # and nothing was begun

    monkeypatch.setattr(inline_tasks, what, fails_once)
    monkeypatch.setattr(sweeper, "MIN_UNINTERRUPTED", 1.0)
    with capture_logs() as logs, celery_at_work(lease=LEASE, renew_every=LEASE / 4):
        run = bench.start("begin -> one -> two")
        ended(run)

    assert [line["log_level"] for line in logs if line["event"] == "continuation_failed"] == ["error"]
    assert [(row.node_id, row.attempt) for row in run.activations] == [("begin", 1), ("one", 2), ("two", 1)]


# -- in other words --------------------------------------------------------------------------------------------------
def ended(run: Run) -> None:
    until(lambda: run.status == "succeeded")


def an_app_that_can_tell(*given: Any, **more: Any) -> Celery:
    """An app whose worker has what it takes to send events, as one from the command line has."""
    app: Any = make_app(*given, **more)
    controller = app.WorkController
    app.WorkController = lambda **given: controller(**{**given, "without_heartbeat": False})
    return app


@dataclass
class Watched:
    """What somebody has heard of tasks."""

    heard: list[Mapping[str, Any]] = field(default_factory=list)

    def of(self, *kinds: str) -> list[tuple[str, str, str]]:
        """(kind, name, arguments) of what happened to nodes, in the order in which it happened."""
        told = {event["uuid"]: event for event in self.heard if event["type"] == "task-received"}
        happened = [event for event in self.heard if event["type"] in kinds and event["uuid"] in self.tasks]
        of_tasks = [(event["type"], told[event["uuid"]]) for event in sorted(happened, key=itemgetter("clock"))]
        return [(kind, task["name"], task["args"]) for kind, task in of_tasks]

    @property
    def tasks(self) -> set[str]:
        """The ids of nodes' tasks."""
        told = [event for event in self.heard if event["type"] == "task-received"]
        return {event["uuid"] for event in told if event["name"].startswith("node:")}


@contextmanager
def watching(app: Celery) -> Generator[Watched]:
    """Somebody like Flower, who has had the worker tell of its tasks."""
    watched, ending = Watched(), threading.Event()

    def listen() -> None:
        with app.connection_for_read() as connection:
            receiver: Any = EventReceiver(connection, handlers={"*": watched.heard.append}, app=app)
            for _ in receiver.itercapture(limit=None, timeout=None, wakeup=False):
                if ending.is_set():
                    return

    def is_heard() -> bool:
        app.control.disable_events(reply=True, limit=1)
        app.control.enable_events(reply=True, limit=1)
        return bool(watched.heard)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        until(is_heard)
        yield watched
    finally:
        ending.set()
        is_heard()  # the listener looks up
        thread.join(PATIENCE)


@contextmanager
def connected(signal: Any, receiver: Callable[..., None]) -> Generator[None]:
    signal.connect(receiver)
    yield
    signal.disconnect(receiver)


@contextmanager
def sent(engine: local_engine.Engine) -> Generator[list[str]]:
    """The activations that hints were sent for."""
    messages: list[str] = []

    def receives(request: Any, **_: Any) -> None:
        messages.extend([request.args[1]] if request.task.name == EXECUTE else ())

    with connected(signals.task_received, receives):
        yield messages


def at_work_now(app: Celery) -> list[tuple[str, list[str]]]:
    """(name, arguments) of the nodes that the worker says are at work."""
    answers = app.control.inspect(limit=1, timeout=PATIENCE).active()
    tasks = [task for told in (answers or {}).values() for task in told]
    return [(task["name"], list(task["args"])) for task in tasks if task["name"].startswith("node:")]


def depth() -> int:
    """How many frames this thread is deep in."""
    frame, frames = sys._getframe(), 0
    while frame is not None:
        frame, frames = frame.f_back, frames + 1
    return frames
