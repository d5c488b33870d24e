"""Stop means stop, from outside: a model provider sees its socket closed, whichever way a run is cancelled.

Real processes, and a provider that writes a token every 50 ms for as long as somebody reads. How fast it is,
`python -m bench.scripts.cancel` measures; here it is only never slow.
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
def stage() -> Iterator[Deployment]:
    folder = Path(tempfile.mkdtemp(prefix="easel-stop-"))
    folder.chmod(0o711)
    try:
        with run_deployment(folder) as stage:
            yield stage
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def status(stage: Deployment, run_id: str) -> str:
    body = stage.client.get(f"/runs/{run_id}").json()
    return body.get("data", body)["status"]


def ends(stage: Deployment, run_id: str) -> str:
    """The status of a run once it is over."""
    wait_until(lambda: status(stage, run_id) in OVER, f"{run_id} does not end")
    return status(stage, run_id)


def cancelled(stage: Deployment, run_id: str) -> Any:
    return stage.client.post(f"/runs/{run_id}/cancel").json()["status"]


def silence(stage: Deployment, name: str, accepted: float) -> None:
    """The stream is closed soon after the cancel was accepted, and stays so."""
    stream = stage.await_stream_close(name)
    assert stream["closed"] - accepted < SOON
    assert stage.stream_record(name) == stream


@contextmanager
def stopped(pid: int) -> Generator[None]:
    """A process does nothing until the block ends, and its sockets stay open."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# -- every way -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("way", ["http", "by task", "command", "run key", "run key in hex", "session key"])
def test_a_cancel_closes_the_providers_socket(stage: Deployment, way: str):
    run_id, session_id, name = stage.start_streaming_run()

    with redis.Redis.from_url(stage.redis_url()) as client:
        match way:
            case "http":
                assert cancelled(stage, run_id) in ("stopping", "cancelled")
            case "by task":
                stage.client.post(f"/tasks/{session_id}/cancel").raise_for_status()
            case "command":
                stage.run_command("cancel", run_id)
            case "run key":
                client.set(f"{UUID(run_id)}-cancel", "x", ex=60)
            case "run key in hex":
                client.set(f"{UUID(run_id).hex}-cancel", "x", ex=60)
            case _:
                client.set(f"{UUID(session_id)}-cancel", "x", ex=60)
        silence(stage, name, monotonic())

    assert ends(stage, run_id) == "cancelled"


def test_disconnect_cancels_the_run_if_the_client_requested_it(stage: Deployment):
    name = stage.new_stream_name()
    question = {"agent_id": stage.agent_id, "query": name, "stream": True, "cancel_on_disconnect": True}

    with stage.client.stream("POST", "/agents/chat/completions", json=question) as stream:
        run_id = stream.headers["x-run-id"]
        stage.await_stream_start(name)

    silence(stage, name, monotonic())
    assert ends(stage, run_id) == "cancelled"


# -- when something is missing ---------------------------------------------------------------------------------------
def test_a_cancel_holds_while_redis_takes_connections_and_answers_nothing(stage: Deployment):
    run_id, _, name = stage.start_streaming_run()

    with stopped(stage.redis_pid()):
        asked = monotonic()
        assert cancelled(stage, run_id) in ("stopping", "cancelled")
        accepted = monotonic()
        silence(stage, name, accepted)
        assert ends(stage, run_id) == "cancelled"

    assert accepted - asked < SOON
    run_id, _, name = stage.start_streaming_run()
    assert cancelled(stage, run_id) in ("stopping", "cancelled")
    silence(stage, name, monotonic())


def test_redis_may_die_without_what_is_in_flight_and_a_cancel_holds_all_the_same(stage: Deployment):
    worker = stage.child_pid("worker.tasks")
    (lives, _, goes_on), (run_id, _, name) = stage.start_streaming_run(), stage.start_streaming_run()

    os.kill(stage.redis_pid(), signal.SIGKILL)
    assert cancelled(stage, run_id) in ("stopping", "cancelled")
    silence(stage, name, monotonic())

    assert ends(stage, run_id) == "cancelled"
    wait_until(stage.is_redis_up, "Redis does not come back")
    third, _, _ = stage.start_streaming_run()  # the worker hears of new work again
    cancelled(stage, third)
    assert stage.stream_record(goes_on)["closed"] is None
    assert stage.child_pid("worker.tasks") == worker
    cancelled(stage, lives)
    assert ends(stage, lives) == "cancelled"


def test_a_cancel_holds_for_a_worker_that_was_frozen_when_it_was_given(stage: Deployment):
    run_id, _, name = stage.start_streaming_run()

    with stopped(stage.child_pid("worker.tasks")):
        assert cancelled(stage, run_id) == "stopping"

    silence(stage, name, monotonic())
    assert ends(stage, run_id) == "cancelled"


def test_cancel_takes_effect_while_no_worker_is_running(stage: Deployment):
    run_id, _, name = stage.start_streaming_run()

    os.kill(stage.child_pid("worker.tasks"), signal.SIGKILL)
    assert cancelled(stage, run_id) in ("stopping", "cancelled")
    gone = stage.await_stream_close(name)

    again, _, other = stage.start_streaming_run()  # a worker is back
    cancelled(stage, again)
    silence(stage, other, monotonic())
    assert stage.stream_record(name) == gone  # and it has begun nothing but this
    assert status(stage, run_id) in ("stopping", "cancelled")
