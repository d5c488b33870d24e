"""Celery's own commands against a real deployment, on Redis and on RabbitMQ, as an operator types them."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from bench.fixtures.deployment import ROOT, TIMEOUT, Deployment, environment_of, run_deployment, wait_until
from scheduler.messaging.celery_app import make_app
from scheduler.messaging.pool_controls import REFUSAL
from tests import rabbitmq

REPLY_TIMEOUT = "20"  # seconds that a command waits for replies
NO_REPLY = 69  # exit code of `celery`; a worker that shuts down does not reply
TASKS = {"worker.execute", "worker.canary", "worker.ingest", "worker.extract", "worker.index"}

needs_rabbitmq = pytest.mark.skipif(
    not rabbitmq.is_installed(), reason="There is no RabbitMQ here: apt-get install rabbitmq-server."
)


@dataclass
class CeleryShell:
    """A shell in which Celery's commands reach a deployment's workers."""

    deployment: Deployment
    environment: Mapping[str, str]
    worker: str = ""  # the name of the one worker that executes nodes

    def run(self, *words: str, code: int = 0) -> str:
        """Run `celery -A worker.tasks` with these words; return its output. It must end with this exit code."""
        process = subprocess.run(
            [sys.executable, "-m", "celery", "-A", "worker.tasks", *words],
            env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=2 * TIMEOUT,
        )  # fmt: skip
        assert process.returncode == code, process.stderr or process.stdout
        return process.stdout

    def inspect(self, what: str) -> Any:
        """Return the worker's answer to `celery -A worker.tasks inspect`."""
        options = ("--json", "--timeout", REPLY_TIMEOUT, "--destination", self.worker)
        return json.loads(self.run("inspect", what, *options))[self.worker]

    def control(self, command: str, **arguments: Any) -> Any:
        """Send a remote control command, as `celery control` does; return the worker's answer."""
        with make_app(self.environment["CELERY_BROKER_URL"]) as app:
            options = {"destination": [self.worker], "limit": 1, "timeout": float(REPLY_TIMEOUT)}
            (reply,) = app.control.broadcast(command, arguments, reply=True, **options)
        return reply[self.worker]

    def find_worker(self) -> None:
        """Wait until the worker that executes nodes answers, and keep its name."""

        def answers() -> bool:
            with make_app(self.environment["CELERY_BROKER_URL"]) as app:
                replies = app.control.broadcast("ping", reply=True, timeout=1)
            names = [name for reply in replies for name in reply if name.startswith("worker")]
            self.worker = names[0] if names else ""
            return bool(names)

        wait_until(answers, "no worker answers")

    def active_nodes(self) -> dict[str, str]:
        """Return the nodes that the worker executes, as activation id -> name of the task."""
        return {task["args"][1]: task["name"] for task in self.control("active")}

    def status(self, run_id: str) -> str:
        body = self.deployment.client.get(f"/runs/{run_id}").json()
        return body.get("data", body)["status"]

    def error(self, run_id: str) -> str:
        return json.dumps(self.deployment.client.get(f"/runs/{run_id}").json())

    @contextmanager
    def dump_of_events(self) -> Generator[Path]:
        """Run `celery events --dump` until the block ends; yield the file of its output."""
        output = self.deployment.home / "events.txt"
        environment = {**self.environment, "PYTHONUNBUFFERED": "1"}
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "worker.tasks", "events", "--dump"],
                env=environment, cwd=ROOT, stdout=file, stderr=file,
            )  # fmt: skip
            try:
                yield output
            finally:
                process.terminate()
                process.wait(TIMEOUT)


@pytest.fixture(scope="module", params=["redis", pytest.param("rabbitmq", marks=[needs_rabbitmq, pytest.mark.long])])
def shell(request: pytest.FixtureRequest) -> Iterator[CeleryShell]:
    folder = Path(tempfile.mkdtemp(prefix="easel-celery-"))
    folder.chmod(0o711)
    with ExitStack() as opened:
        opened.callback(shutil.rmtree, folder, ignore_errors=True)
        settings = {"EASEL_UNRESPONSIVE_AFTER": "10m"}  # nothing here ends because of that
        if request.param == "rabbitmq":
            rabbit = opened.enter_context(rabbitmq.running(Path(tempfile.mkdtemp(dir=folder))))
            settings["CELERY_BROKER_URL"] = rabbit.vhost()
        deployment = opened.enter_context(run_deployment(folder, settings=settings))
        servers = json.loads((deployment.home / "up.json").read_text())
        broker_url = settings.get("CELERY_BROKER_URL", servers["redis_url"])
        urls = {"DATABASE_URL": servers["database_url"], "REDIS_URL": servers["redis_url"]}
        environment = {**environment_of(deployment.home), **urls, "CELERY_BROKER_URL": broker_url}
        shell = CeleryShell(deployment, environment)
        shell.find_worker()
        yield shell


def test_inspect_shows_the_running_node_its_worker_and_its_tasks(shell: CeleryShell):
    run_id, _, _ = shell.deployment.start_streaming_run()

    (active,) = shell.inspect("active")
    stats = shell.inspect("stats")
    registered = shell.inspect("registered")
    queues = shell.control("active_queues")

    assert (active["name"], active["args"][0]) == ("node:LLM", str(UUID(run_id)))
    assert stats["total"]["node:LLM"] >= 1
    assert stats["pool"]["max-concurrency"] > 1
    assert {task.partition(" ")[0] for task in registered} >= TASKS
    assert "nodes" in {queue["name"] for queue in queues}
    shell.deployment.client.post(f"/runs/{run_id}/cancel").raise_for_status()
    wait_until(lambda: shell.active_nodes() == {}, "the node does not end")


def test_terminate_ends_the_node_as_cancelled_by_an_operator(shell: CeleryShell):
    run_id, _, name = shell.deployment.start_streaming_run()
    (activation_id,) = shell.active_nodes()

    shell.control("revoke", task_id=activation_id, terminate=True)

    shell.deployment.await_stream_close(name)
    wait_until(lambda: shell.status(run_id) == "failed", "the run does not end")
    assert "Cancelled by an operator" in shell.error(run_id)


def test_worker_receives_no_node_between_cancel_consumer_and_add_consumer(shell: CeleryShell):
    shell.control("cancel_consumer", queue="nodes")
    run_id = start(shell)
    wait_until(lambda: shell.status(run_id) == "running", "the run does not start")
    assert shell.active_nodes() == {}
    assert shell.status(run_id) == "running"

    shell.control("add_consumer", queue="nodes")

    wait_until(lambda: shell.status(run_id) == "succeeded", "the run does not go on")


def test_rate_limit_of_the_task_is_accepted_and_runs_go_on(shell: CeleryShell):
    reply = shell.control("rate_limit", task_name="worker.execute", rate_limit="100/s")
    try:
        run_id = start(shell)
        wait_until(lambda: shell.status(run_id) == "succeeded", "the run does not go on")
    finally:
        shell.control("rate_limit", task_name="worker.execute", rate_limit="0")

    assert "rate limit set" in reply["ok"]


def test_pool_of_threads_refuses_another_size_in_words(shell: CeleryShell):
    replies = [shell.control(f"pool_{change}", n=1) for change in ("grow", "shrink")]

    assert [reply["error"] for reply in replies] == [REFUSAL, REFUSAL]


def test_events_show_each_node_under_its_name(shell: CeleryShell):
    shell.control("enable_events")
    with shell.dump_of_events() as output:

        def shows_a_node() -> bool:
            start(shell)
            return "node:Begin" in output.read_text(errors="replace")

        wait_until(shows_a_node, "the events show no node")


def test_shutdown_ends_the_worker_and_the_run_goes_on_in_the_next(shell: CeleryShell):
    run_id, _, name = shell.deployment.start_streaming_run()
    before = shell.control("stats")["pid"]

    shell.run("control", "shutdown", "--destination", shell.worker, "--timeout", "1", code=NO_REPLY)

    wait_until(lambda: not os.path.exists(f"/proc/{before}"), "the worker does not end")
    shell.find_worker()
    wait_until(lambda: shell.active_nodes() != {}, "the node is not executed again")
    shell.deployment.client.post(f"/runs/{run_id}/cancel").raise_for_status()
    shell.deployment.await_stream_close(name)
    wait_until(lambda: shell.status(run_id) == "cancelled", "the run is not cancelled")


def start(shell: CeleryShell) -> str:
    """Start a run of a canvas without a model; return its id."""
    parts = {"begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": [], "upstream": []}}
    made = shell.deployment.client.post("/agents", json={"title": os.urandom(8).hex(), "dsl": {"components": parts}})
    reply = shell.deployment.client.post(f"/agents/{made.json()['data']['id']}/runs", json={"query": "hello"})
    reply.raise_for_status()
    return str(UUID(reply.json()["run_id"]))
