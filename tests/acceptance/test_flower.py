"""Flower on a real deployment: its API and its pages, as a browser shows them, for a run of every kind of end.

`python -m tests.acceptance.test_flower FOLDER` writes pictures of the pages.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from bench.fixtures.deployment import Deployment, environment_of, run_deployment, wait_until
from tests.chromium import find_chromium

CHROMIUM = find_chromium()
OVER = ("succeeded", "failed", "cancelled")
FORM = {"inputs": {"name": {"type": "line", "name": "Name"}}, "tips": "Who are you?"}
LLM = {"llm_id": "m@OpenAI-API-Compatible", "prompts": [{"role": "user", "content": "{sys.query}"}]}


@dataclass
class Flower:
    """A running Flower, beside the deployment that it shows."""

    url: str
    deployment: Deployment

    def all_tasks(self) -> list[Mapping[str, Any]]:
        """Return all tasks as Flower's API has them."""
        with httpx2.Client() as client:
            return list(client.get(f"{self.url}/api/tasks", params={"limit": 10_000}).json().values())

    def tasks(self, run_id: str) -> dict[str, Mapping[str, Any]]:
        """Return the tasks of a run's nodes by node id; the latest of a node counts."""
        found = self.all_tasks()
        of_run = [task for task in found if task["root_id"] == run_id and task["name"].startswith("node:")]
        return {task["args"].split("'")[5]: task for task in sorted(of_run, key=lambda task: task["received"] or 0)}

    def advances(self, run_id: str) -> list[Mapping[str, Any]]:
        return [task for task in self.all_tasks() if task["root_id"] == run_id and task["name"] == "scheduler.advance"]

    def start(self, components: Mapping[str, tuple[str, Mapping[str, Any], list[str]]], query: str = "hello") -> str:
        """Start a run of a new canvas, given as id -> (component, parameters, targets)."""
        parts = {
            name: {"obj": {"component_name": component, "params": params}, "downstream": targets, "upstream": []}
            for name, (component, params, targets) in components.items()
        }
        made = self.deployment.client.post("/agents", json={"title": f"canvas {uuid4()}", "dsl": {"components": parts}})
        agent_id = made.json()["data"]["id"]
        reply = self.deployment.client.post(f"/agents/{agent_id}/runs", json={"query": query})
        reply.raise_for_status()
        return str(UUID(reply.json()["run_id"]))

    def status(self, run_id: str) -> str:
        body = self.deployment.client.get(f"/runs/{run_id}").json()
        return body.get("data", body)["status"]

    def state(self, run_id: str, node: str) -> str | None:
        """Return the state of the latest task of a node; None if there is none yet."""
        task = self.tasks(run_id).get(node)
        return task["state"] if task is not None else None

    def await_state(self, run_id: str, node: str, state: str) -> Mapping[str, Any]:
        """Wait until a node's task has a state in Flower; return the task."""
        wait_until(lambda: self.state(run_id, node) == state, f"{node} is not {state} in {self.url}")
        return self.tasks(run_id)[node]


@contextmanager
def run_flower(folder: Path) -> Generator[Flower]:
    """Run a deployment with Flower until the block ends."""
    with run_deployment(folder, limits={"requests_per_minute": 3}) as deployment:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = {**environment_of(deployment.home), "FLOWER_UNAUTHENTICATED_API": "true"}
        command = [sys.executable, "-m", "cli", "flower", "--port", str(port), "--inspect_timeout=5000"]
        log = (folder / "flower.log").open("wb")
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
        flower = Flower(f"http://127.0.0.1:{port}", deployment)
        try:
            wait_until(lambda: _shows_events(flower), "Flower shows no tasks")
            yield flower
        finally:
            process.terminate()
            process.wait(30)
            log.close()


def _shows_events(flower: Flower) -> bool:
    """Whether Flower gets the events of workers; it asks them for events every few seconds."""
    flower.start({"begin": ("Begin", {}, [])})
    try:
        return any(task["name"] == "node:Begin" for task in flower.all_tasks())
    except (httpx2.HTTPError, ValueError):
        return False


@pytest.fixture(scope="module")
def flower() -> Iterator[Flower]:
    folder = Path(tempfile.mkdtemp(prefix="easel-flower-"))
    folder.chmod(0o711)
    try:
        with run_flower(folder) as flower:
            yield flower
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def page(url: str, picture: Path | None = None, width: int = 1400) -> str:
    """Return a page's document as Chromium has it, or write a picture of it."""
    assert CHROMIUM is not None
    home = tempfile.mkdtemp(prefix="easel-chromium-")
    what = [f"--screenshot={picture}"] if picture is not None else ["--dump-dom"]
    command = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={home}",
        f"--window-size={width},900", "--virtual-time-budget=6000", *what, url,
    ]  # fmt: skip
    try:
        return subprocess.run(
            command, env={**os.environ, "HOME": home}, capture_output=True, text=True, timeout=60, check=True
        ).stdout
    finally:
        shutil.rmtree(home, ignore_errors=True)


needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


# -- runs of every kind of end ---------------------------------------------------------------------------------------
def chain(flower: Flower) -> str:
    transform = {"method": "merge", "script": "{sys.query}", "delimiters": [","]}
    parts = {
        "begin": ("Begin", {}, ["StringTransform:One"]),
        "StringTransform:One": ("StringTransform", transform, ["StringTransform:Two"]),
        "StringTransform:Two": ("StringTransform", transform, ["Message:End"]),
        "Message:End": ("Message", {"content": ["done"]}, []),
    }
    return flower.start(parts)


def failure(flower: Flower) -> str:
    fails = {"url": "http://127.0.0.1:1/closed", "method": "get", "timeout": 2}
    return flower.start({"begin": ("Begin", {}, ["Invoke:Fails"]), "Invoke:Fails": ("Invoke", fails, [])})


def form(flower: Flower) -> str:
    return flower.start({"begin": ("Begin", {}, ["UserFillUp:Ask"]), "UserFillUp:Ask": ("UserFillUp", FORM, [])})


def stream(flower: Flower) -> str:
    return flower.start({"begin": ("Begin", {}, ["LLM:Ask"]), "LLM:Ask": ("LLM", LLM, [])}, query="endless")


def test_every_node_of_a_chain_is_a_task_of_the_run_after_the_one_before(flower: Flower):
    run_id = chain(flower)
    flower.await_state(run_id, "Message:End", "SUCCESS")

    tasks = flower.tasks(run_id)

    names = ["begin", "StringTransform:One", "StringTransform:Two", "Message:End"]
    assert list(tasks) == names
    assert {task["state"] for task in tasks.values()} == {"SUCCESS"}
    for before, after in pairwise(names):
        assert tasks[after]["parent_id"] == tasks[before]["uuid"]
    assert all(task["runtime"] is not None and 0 < task["runtime"] < 30 for task in tasks.values())
    assert tasks["StringTransform:One"]["result"] == "'finished'"


def test_advances_of_a_run_are_tasks_beside_its_nodes(flower: Flower):
    run_id = chain(flower)
    flower.await_state(run_id, "Message:End", "SUCCESS")

    wait_until(lambda: len(flower.advances(run_id)) >= 3, "no advance is shown")

    assert {task["state"] for task in flower.advances(run_id)} <= {"SUCCESS", "STARTED", "RECEIVED"}


def test_failed_node_is_shown_with_its_error(flower: Flower):
    task = flower.await_state(failure(flower), "Invoke:Fails", "FAILURE")

    assert "NodeFailed" in task["exception"]


def test_node_that_waits_for_a_person_is_told_apart(flower: Flower):
    task = flower.await_state(form(flower), "UserFillUp:Ask", "SUCCESS")

    assert task["result"] == "'waits for a person'"


def test_revoke_from_flower_ends_the_node_as_cancelled_by_an_operator(flower: Flower):
    run_id = stream(flower)
    task = flower.await_state(run_id, "LLM:Ask", "STARTED")

    with httpx2.Client() as client:
        client.post(f"{flower.url}/api/task/revoke/{task['uuid']}", params={"terminate": "true"}).raise_for_status()

    flower.await_state(run_id, "LLM:Ask", "REVOKED")
    wait_until(lambda: flower.status(run_id) in OVER, "the run does not end")
    body = flower.deployment.client.get(f"/runs/{run_id}").json()
    assert flower.status(run_id) == "failed"
    assert "Cancelled by an operator" in json.dumps(body)


@pytest.mark.long
def test_cancelled_and_postponed_nodes_are_revoked_and_retried(flower: Flower):
    running = [stream(flower) for _ in range(4)]  # the account allows three requests a minute

    def states() -> set[str | None]:
        return {flower.state(run, "LLM:Ask") for run in running}

    wait_until(lambda: {"RETRY", "STARTED"} <= states(), "no retry is shown")

    for run in running:
        flower.deployment.client.post(f"/runs/{run}/cancel").raise_for_status()

    # one that had started and not yet asked its model may still have been postponed, so not each of them is revoked
    wait_until(lambda: {"RETRY", "REVOKED"} <= states(), "no cancelled node is shown")


# -- pages -----------------------------------------------------------------------------------------------------------
@needs_chromium
def test_pages_of_every_worker_and_task_open_in_a_browser(flower: Flower):
    run_id = chain(flower)
    flower.await_state(run_id, "Message:End", "SUCCESS")
    with httpx2.Client() as client:
        workers = list(client.get(f"{flower.url}/api/workers", params={"refresh": "true"}, timeout=30).json())

    documents = {worker: page(f"{flower.url}/worker/{worker}") for worker in workers}
    task = page(f"{flower.url}/task/{flower.tasks(run_id)['StringTransform:Two']['uuid']}")

    assert len(workers) >= 2
    assert all("Error 404" not in text and "Pool" in text for text in documents.values())
    assert "StringTransform:Two" in task
    assert "SUCCESS" in task


def main(folder: Path) -> None:
    """Write pictures of Flower's pages to a folder."""
    place = Path(tempfile.mkdtemp(prefix="easel-flower-"))
    place.chmod(0o711)
    with run_flower(place) as flower:
        done, failed, asks = chain(flower), failure(flower), form(flower)
        flower.await_state(done, "Message:End", "SUCCESS")
        flower.await_state(asks, "UserFillUp:Ask", "SUCCESS")
        broken = flower.await_state(failed, "Invoke:Fails", "FAILURE")
        running = [stream(flower) for _ in range(4)]
        wait_until(lambda: any(flower.state(run, "LLM:Ask") == "RETRY" for run in running), "no retry")
        for run in running:
            flower.deployment.client.post(f"/runs/{run}/cancel")
        wait_until(lambda: any(flower.state(run, "LLM:Ask") == "REVOKED" for run in running), "no cancel")
        with httpx2.Client() as client:
            workers = list(client.get(f"{flower.url}/api/workers", params={"refresh": "true"}, timeout=30).json())
        worker = next(name for name in workers if "worker" in name)
        page(f"{flower.url}/tasks", folder / "flower-tasks.png")
        page(f"{flower.url}/task/{broken['uuid']}", folder / "flower-failed-node.png")
        page(f"{flower.url}/worker/{worker}", folder / "flower-worker.png")
        (folder / "tasks.json").write_text(json.dumps(flower.tasks(failed), indent=1))
    shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
