"""A cancel closes the connection to the model provider, whichever way a run is cancelled.

Real processes, and a provider that writes a token every 50 ms while the client reads. `python -m bench.scripts.cancel`
measures the delay; these tests only limit it.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID

import pytest
import redis

from bench.fixtures.deployment import Deployment, run_deployment, wait_until

SOON = 5.0  # seconds
OVER = ("succeeded", "failed", "cancelled")


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    folder = Path(tempfile.mkdtemp(prefix="easel-stop-"))
    folder.chmod(0o711)
    try:
        with run_deployment(folder) as deployment:
            yield deployment
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def status(deployment: Deployment, run_id: str) -> str:
    body = deployment.client.get(f"/runs/{run_id}").json()
    return body.get("data", body)["status"]


def final_status(deployment: Deployment, run_id: str) -> str:
    """Wait until a run is over; return its status."""
    wait_until(lambda: status(deployment, run_id) in OVER, f"{run_id} does not end")
    return status(deployment, run_id)


def cancel(deployment: Deployment, run_id: str) -> Any:
    return deployment.client.post(f"/runs/{run_id}/cancel").json()["status"]


def assert_stream_closes(deployment: Deployment, name: str, accepted_at: float) -> None:
    """Assert that the stream is closed soon after the cancel was accepted, and stays closed."""
    stream = deployment.await_stream_close(name)
    assert stream["closed"] - accepted_at < SOON
    assert deployment.stream_record(name) == stream


@contextmanager
def paused(pid: int) -> Generator[None]:
    """Pause a process until the block ends; its sockets stay open."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# -- requests --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("way", ["http", "by task", "command", "run key", "run key in hex", "session key"])
def test_cancel_closes_the_connection_to_the_model_provider(deployment: Deployment, way: str):  # T075
    run_id, session_id, name = deployment.start_streaming_run()

    with redis.Redis.from_url(deployment.redis_url()) as client:
        match way:
            case "http":
                assert cancel(deployment, run_id) in ("stopping", "cancelled")
            case "by task":
                deployment.client.post(f"/tasks/{session_id}/cancel").raise_for_status()
            case "command":
                deployment.run_command("cancel", run_id)
            case "run key":
                client.set(f"{UUID(run_id)}-cancel", "x", ex=60)
            case "run key in hex":
                client.set(f"{UUID(run_id).hex}-cancel", "x", ex=60)
            case _:
                client.set(f"{UUID(session_id)}-cancel", "x", ex=60)
        assert_stream_closes(deployment, name, monotonic())

    assert final_status(deployment, run_id) == "cancelled"


def test_disconnect_cancels_the_run_if_the_client_requested_it(deployment: Deployment):
    name = deployment.new_stream_name()
    question = {"agent_id": deployment.agent_id, "query": name, "stream": True, "cancel_on_disconnect": True}

    with deployment.client.stream("POST", "/agents/chat/completions", json=question) as stream:
        run_id = stream.headers["x-run-id"]
        deployment.await_stream_start(name)

    assert_stream_closes(deployment, name, monotonic())
    assert final_status(deployment, run_id) == "cancelled"


# -- failed processes ------------------------------------------------------------------------------------------------
def test_cancel_takes_effect_while_redis_accepts_connections_without_answering(deployment: Deployment):
    run_id, _, name = deployment.start_streaming_run()

    with paused(deployment.redis_pid()):
        requested_at = monotonic()
        assert cancel(deployment, run_id) in ("stopping", "cancelled")
        accepted_at = monotonic()
        assert_stream_closes(deployment, name, accepted_at)
        assert final_status(deployment, run_id) == "cancelled"

    assert accepted_at - requested_at < SOON
    run_id, _, name = deployment.start_streaming_run()
    assert cancel(deployment, run_id) in ("stopping", "cancelled")
    assert_stream_closes(deployment, name, monotonic())


def test_cancel_takes_effect_and_other_streams_continue_when_redis_is_killed(deployment: Deployment):
    worker = deployment.child_pid("worker.tasks")
    (other_run, _, other_stream), (run_id, _, name) = deployment.start_streaming_run(), deployment.start_streaming_run()

    os.kill(deployment.redis_pid(), signal.SIGKILL)
    assert cancel(deployment, run_id) in ("stopping", "cancelled")
    assert_stream_closes(deployment, name, monotonic())

    assert final_status(deployment, run_id) == "cancelled"
    wait_until(deployment.is_redis_up, "Redis does not come back")
    third, _, _ = deployment.start_streaming_run()  # the worker receives task messages again
    cancel(deployment, third)
    assert deployment.stream_record(other_stream)["closed"] is None
    assert deployment.child_pid("worker.tasks") == worker
    cancel(deployment, other_run)
    assert final_status(deployment, other_run) == "cancelled"


def test_cancel_takes_effect_when_a_worker_frozen_at_the_request_continues(deployment: Deployment):
    run_id, _, name = deployment.start_streaming_run()

    with paused(deployment.child_pid("worker.tasks")):
        assert cancel(deployment, run_id) == "stopping"

    assert_stream_closes(deployment, name, monotonic())
    assert final_status(deployment, run_id) == "cancelled"


def test_cancel_takes_effect_while_no_worker_is_running(deployment: Deployment):
    run_id, _, name = deployment.start_streaming_run()

    os.kill(deployment.child_pid("worker.tasks"), signal.SIGKILL)
    assert cancel(deployment, run_id) in ("stopping", "cancelled")
    closed_stream = deployment.await_stream_close(name)

    next_run, _, next_stream = deployment.start_streaming_run()  # a new worker runs
    cancel(deployment, next_run)
    assert_stream_closes(deployment, next_stream, monotonic())
    assert deployment.stream_record(name) == closed_stream  # and has not started the cancelled activation
    assert status(deployment, run_id) in ("stopping", "cancelled")
