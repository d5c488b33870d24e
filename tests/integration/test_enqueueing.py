"""Other services start runs with the Celery code of docs/enqueue.md, on RabbitMQ and on Redis."""

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
DEADLINE_S = 120.0  # seconds for processes that start on a busy machine
SECRET = "a confidential query"

needs_rabbitmq = pytest.mark.skipif(
    not rabbitmq.is_installed(), reason="There is no RabbitMQ here: apt-get install rabbitmq-server."
)


def read_documented_code() -> str:
    """Return the sender's code from the documentation."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "enqueue.md").read_text(), re.DOTALL)
    return blocks[0]


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    with rabbitmq.running(tmp_path_factory.mktemp("rabbit")) as server:
        yield server


class Deployment:
    """A tenant with an agent, and a scheduler if one was started."""

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
        """Send a start with the code of the documentation, in a process without Easel."""
        code = read_documented_code().replace('"local"', repr(self.tenant))
        environment = {"BROKER_URL": broker_url, "AGENT_ID": str(self.agent_id), "PATH": os.environ["PATH"]}
        completed = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd="/", capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert completed.returncode == 0, completed.stderr

    @contextmanager
    def scheduler(self, broker_url: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a scheduler until the block ends."""
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

    def wait_for_run(self, external_id: str, holds: Callable[[RunSummary], bool] = lambda run: True) -> RunSummary:
        """Wait until the run of that id exists and meets a condition; return it."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            with self.database.transaction() as tx:
                run_id: UUID | None = external_ids.find_run(tx, self.tenant_id, external_id)
                run = run_queries.get_summary(tx, self.tenant_id, run_id) if run_id is not None else None
            if run is not None and holds(run):
                return run
            assert time.monotonic() < deadline, (run, self.log_text)
            time.sleep(0.05)

    def wait_for_log(self, text: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.log_text:
            assert time.monotonic() < deadline, self.log_text
            time.sleep(0.05)

    @property
    def log_text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


@pytest.fixture
def deployment(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Deployment]:
    database = Database(database_url, pool_size=2)
    yield Deployment(database, redis_url, tmp_path / "log")
    database.close()


def received_starts(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events of starts by the documented code that a scheduler has received."""
    return [event for event in events if event["type"] == "task-received" and "order-4711" in event["args"]]


@needs_rabbitmq
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("started_first", "kind"),
    [
        ("sender", None),
        ("easel", "quorum"),
        pytest.param("easel", None, marks=pytest.mark.long),
        pytest.param("sender", "quorum", marks=pytest.mark.long),
    ],
)
def test_documented_sender_code_works_on_rabbitmq_before_and_after_easel_starts(
    deployment: Deployment, rabbit: Rabbit, started_first: str, kind: str | None
):
    broker_url = rabbit.vhost(default_queue_type=kind)
    if started_first == "sender":
        deployment.send_as_documented(broker_url)
    with deployment.scheduler(broker_url):
        if started_first == "easel":
            deployment.wait_for_log(" ready")
            deployment.send_as_documented(broker_url)

        assert deployment.wait_for_run("order-4711").status == "running"

    queues = {name: type_ for name, type_ in rabbit.queues(broker_url).items() if not name.startswith("alive.")}
    assert queues["runs"] == (kind or "classic")
    assert [name for name in queues if name.startswith("celery_delayed")] == []
    assert "PRECONDITION_FAILED" not in deployment.log_text
    assert "delayed delivery" not in deployment.log_text


@needs_rabbitmq
@pytest.mark.long
@pytest.mark.timeout(900)
def test_quorum_queues_of_an_earlier_release_are_still_used(deployment: Deployment, rabbit: Rabbit):
    broker_url = rabbit.vhost()
    app = Celery(broker=broker_url)
    with app.connection_for_write() as connection:
        for name in ("runs", "nodes"):
            arguments = {"x-queue-type": "quorum"}
            Queue(name, Exchange(name), name, queue_arguments=arguments, channel=connection.default_channel).declare()
    with deployment.scheduler(broker_url):
        ids = (deployment.tenant, "order-4711", str(deployment.agent_id))
        app.send_task("scheduler.start", args=ids, exchange="runs", routing_key="runs")

        assert deployment.wait_for_run("order-4711").status == "running"

    assert rabbit.queues(broker_url)["runs"] == "quorum"
    assert "PRECONDITION_FAILED" not in deployment.log_text


@needs_rabbitmq
@pytest.mark.timeout(900)
def test_starts_with_a_countdown_do_not_block_other_starts_on_rabbitmq(deployment: Deployment, rabbit: Rabbit):
    broker_url = rabbit.vhost()
    app = Celery(broker=broker_url)
    with deployment.scheduler(broker_url):
        for number in range(12):  # the scheduler has two threads
            ids = (deployment.tenant, f"later-{number}", str(deployment.agent_id))
            app.send_task("scheduler.start", args=ids, queue="runs", countdown=600)
        ids = (deployment.tenant, "soon", str(deployment.agent_id))
        app.send_task("scheduler.start", args=ids, queue="runs", countdown=1)
        deployment.send_as_documented(broker_url)

        deployment.wait_for_run("order-4711")
        deployment.wait_for_run("soon")


@pytest.mark.timeout(900)
def test_logs_events_and_inspection_on_redis_do_not_contain_user_input(deployment: Deployment):
    app = Celery(broker=deployment.redis_url)
    events: list[dict[str, Any]] = []
    ids = (deployment.tenant, "later", str(deployment.agent_id))
    with deployment.scheduler(deployment.redis_url):
        deployment.wait_for_log(" ready")
        app.send_task("scheduler.start", args=ids, kwargs={"query": SECRET}, queue="runs", countdown=600)
        app.send_task("scheduler.start", args=(deployment.tenant,), kwargs={"query": SECRET}, queue="runs")
        invalid_start = (deployment.tenant, "wrong", str(deployment.agent_id))
        app.send_task("scheduler.start", args=invalid_start, kwargs={"qurey": SECRET}, queue="runs")
        app.send_task("no.such.task", args=(SECRET,), queue="runs")
        Celery(broker=deployment.redis_url, task_serializer="pickle", accept_content=["pickle"]).send_task(
            "scheduler.start", args=ids, kwargs={"query": SECRET}, queue="runs"
        )
        with app.connection() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": events.append})
            receiving = threading.Thread(target=receiver.capture, kwargs={"limit": None, "timeout": None}, daemon=True)
            receiving.start()
            deadline = time.monotonic() + DEADLINE_S
            while not received_starts(events):  # the first ones may come before the receiver listens
                assert time.monotonic() < deadline, events
                deployment.send_as_documented(deployment.redis_url)
            receiver.should_stop = True
            receiving.join(DEADLINE_S)
        deployment.wait_for_run("order-4711")
        assert deployment.wait_for_run("wrong").status == "refused"
        deployment.wait_for_log("no.such.task")
        scheduled = app.control.inspect(timeout=10).scheduled()
        deployment.wait_for_log("ContentDisallowed")

    assert "later" in json.dumps(scheduled)
    start_event = received_starts(events)[0]
    assert "order-4711" in start_event["args"]
    assert start_event["kwargs"] == "{'query': ..., 'user_id': ...}"
    for output in (deployment.log_text, json.dumps(events, default=str), json.dumps(scheduled)):
        assert SECRET not in output
        assert "Hello" not in output
    assert "Traceback" not in deployment.log_text
