"""Other services start runs with Celery alone, on RabbitMQ and on Redis: the code of docs/enqueue.md as it stands."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from celery import Celery
from kombu import Exchange, Queue

from store.agents import canvases
from store.db.database import Database
from store.primitives.ids import new_id
from store.runs import external_ids, run_queries
from store.runs.run_queries import RunSummary
from store.tenants import tenants
from tests import rabbitmq
from tests.integration.engine import dsl_of
from tests.rabbitmq import Rabbit

ROOT = Path(__file__).parents[2]
WITHIN = 120.0  # seconds for processes that start on a busy machine
SECRET = "a confidential query"

needs_rabbitmq = pytest.mark.skipif(
    not rabbitmq.is_there(), reason="There is no RabbitMQ here: apt-get install rabbitmq-server."
)


def documented() -> str:
    """The sender's code of the documentation."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "enqueue.md").read_text(), re.DOTALL)
    return blocks[0]


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    with rabbitmq.running(tmp_path_factory.mktemp("rabbit")) as server:
        yield server


class World:
    """A tenant with an agent, and a scheduler where one was started."""

    def __init__(self, database: Database, redis_url: str, log: Path) -> None:
        self.database = database
        self.redis_url = redis_url
        self.log = log
        with database.transaction() as tx:
            self.tenant = f"tenant {new_id()}"
            self.tenant_id = tenants.create_tenant(tx, self.tenant)
            dsl = dsl_of("begin -> say", say={"content": ["Hi"]})
            self.agent_id = canvases.create(tx, self.tenant_id, "agent", dsl)

    def send_as_documented(self, broker_url: str) -> None:
        """Send a start with the code of the documentation, in a process that knows nothing of Easel."""
        code = documented().replace('"local"', repr(self.tenant))
        environment = {"BROKER_URL": broker_url, "AGENT_ID": str(self.agent_id), "PATH": os.environ["PATH"]}
        sent = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd="/", capture_output=True, text=True, timeout=WITHIN
        )
        assert sent.returncode == 0, sent.stderr

    @contextmanager
    def scheduler(self, broker_url: str) -> Iterator["subprocess.Popen[bytes]"]:
        """A scheduler, until the block ends."""
        environment = {
            **os.environ,
            "DATABASE_URL": self.database.url,
            "REDIS_URL": self.redis_url,
            "CELERY_BROKER_URL": broker_url,
            "EASEL_LOG_FORMAT": "json",
        }
        options = ("-Q", "runs", "-P", "threads", "-c", "2", "--without-gossip", "--without-mingle", "-E", "-l", "INFO")
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "scheduler.tasks", "worker", *options],
                env=environment, cwd=ROOT, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)

    def until(self, external_id: str, holds: Callable[[RunSummary], bool] = lambda run: True) -> RunSummary:
        """The run of that id, once it is as wanted."""
        deadline = time.monotonic() + WITHIN
        while True:
            with self.database.transaction() as tx:
                run_id: UUID | None = external_ids.find_run(tx, self.tenant_id, external_id)
                run = run_queries.get_summary(tx, self.tenant_id, run_id) if run_id is not None else None
            if run is not None and holds(run):
                return run
            assert time.monotonic() < deadline, (run, self.said)
            time.sleep(0.05)

    def until_said(self, what: str) -> None:
        deadline = time.monotonic() + WITHIN
        while what not in self.said:
            assert time.monotonic() < deadline, self.said
            time.sleep(0.05)

    @property
    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


@pytest.fixture
def world(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[World]:
    database = Database(database_url, pool_size=2)
    yield World(database, redis_url, tmp_path / "log")
    database.close()


def received(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events of starts of the documented code that a scheduler has received."""
    return [event for event in events if event["type"] == "task-received" and "order-4711" in event["args"]]


@needs_rabbitmq
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [None, "quorum"], ids=["default vhost", "vhost of quorum queues"])
@pytest.mark.parametrize("comes_first", ["sender", "easel"])
def test_the_documented_code_works_on_rabbitmq_whoever_comes_first(
    world: World, rabbit: Rabbit, comes_first: str, kind: str | None
):
    broker_url = rabbit.vhost(default_queue_type=kind)
    if comes_first == "sender":
        world.send_as_documented(broker_url)
    with world.scheduler(broker_url):
        if comes_first == "easel":
            world.until_said(" ready")
            world.send_as_documented(broker_url)

        assert world.until("order-4711").status == "running"

    queues = {name: type_ for name, type_ in rabbit.queues(broker_url).items() if not name.startswith("alive.")}
    assert queues["runs"] == (kind or "classic")
    assert [name for name in queues if name.startswith("celery_delayed")] == []
    assert "PRECONDITION_FAILED" not in world.said
    assert "delayed delivery" not in world.said


@needs_rabbitmq
@pytest.mark.timeout(900)
def test_quorum_queues_that_an_earlier_release_has_made_go_on(world: World, rabbit: Rabbit):
    broker_url = rabbit.vhost()
    app = Celery(broker=broker_url)
    with app.connection_for_write() as connection:
        for name in ("runs", "nodes"):
            arguments = {"x-queue-type": "quorum"}
            Queue(name, Exchange(name), name, queue_arguments=arguments, channel=connection.default_channel).declare()
    with world.scheduler(broker_url):
        ids = (world.tenant, "order-4711", str(world.agent_id))
        app.send_task("scheduler.start", args=ids, exchange="runs", routing_key="runs")

        assert world.until("order-4711").status == "running"

    assert rabbit.queues(broker_url)["runs"] == "quorum"
    assert "PRECONDITION_FAILED" not in world.said


@needs_rabbitmq
@pytest.mark.timeout(900)
def test_starts_with_a_countdown_keep_no_others_from_rabbitmqs_scheduler(world: World, rabbit: Rabbit):
    broker_url = rabbit.vhost()
    app = Celery(broker=broker_url)
    with world.scheduler(broker_url):
        for number in range(12):  # the scheduler has two threads
            ids = (world.tenant, f"later-{number}", str(world.agent_id))
            app.send_task("scheduler.start", args=ids, queue="runs", countdown=600)
        ids = (world.tenant, "soon", str(world.agent_id))
        app.send_task("scheduler.start", args=ids, queue="runs", countdown=1)
        world.send_as_documented(broker_url)

        world.until("order-4711")
        world.until("soon")


@pytest.mark.timeout(900)
def test_on_redis_no_log_no_event_and_no_inspection_shows_what_a_user_has_said(world: World):
    app = Celery(broker=world.redis_url)
    events: list[dict[str, Any]] = []
    ids = (world.tenant, "later", str(world.agent_id))
    with world.scheduler(world.redis_url):
        world.until_said(" ready")
        app.send_task("scheduler.start", args=ids, kwargs={"query": SECRET}, queue="runs", countdown=600)
        app.send_task("scheduler.start", args=(world.tenant,), kwargs={"query": SECRET}, queue="runs")
        wrong = (world.tenant, "wrong", str(world.agent_id))
        app.send_task("scheduler.start", args=wrong, kwargs={"qurey": SECRET}, queue="runs")
        app.send_task("no.such.task", args=(SECRET,), queue="runs")
        Celery(broker=world.redis_url, task_serializer="pickle", accept_content=["pickle"]).send_task(
            "scheduler.start", args=ids, kwargs={"query": SECRET}, queue="runs"
        )
        with app.connection() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": events.append})
            listening = threading.Thread(target=receiver.capture, kwargs={"limit": None, "timeout": None}, daemon=True)
            listening.start()
            deadline = time.monotonic() + WITHIN
            while not received(events):  # the first ones may come before the receiver listens
                assert time.monotonic() < deadline, events
                world.send_as_documented(world.redis_url)
            receiver.should_stop = True
            listening.join(WITHIN)
        world.until("order-4711")
        assert world.until("wrong").status == "refused"
        world.until_said("no.such.task")
        scheduled = app.control.inspect(timeout=10).scheduled()
        world.until_said("ContentDisallowed")

    assert "later" in json.dumps(scheduled)
    shown_by_event = received(events)[0]
    assert "order-4711" in shown_by_event["args"]
    assert shown_by_event["kwargs"] == "{'query': ..., 'user_id': ...}"
    for shown in (world.said, json.dumps(events, default=str), json.dumps(scheduled)):
        assert SECRET not in shown
        assert "Hello" not in shown
    assert "Traceback" not in world.said
