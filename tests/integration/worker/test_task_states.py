"""Celery's events tell how each node ended: what Flower shows, and what an operator's `revoke` does."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest

import local_engine
from canvas.errors import NodeFailure
from canvas.ids import RunId
from canvas.outcome import Finished
from canvas.state.run_state import activation_id
from components.context import NodeContext
from scheduler.messaging.celery_app import QUEUE_PROBE
from tests.integration.engine import FORM, Bench, until
from tests.integration.worker.test_inline_tasks import (
    TaskMonitor,
    celery_worker,  # noqa: F401 (a fixture)
    make_app_with_events,
    monitor_tasks,
)

CeleryWorker = Callable[..., AbstractContextManager[local_engine.Engine]]
ENDS = ("task-succeeded", "task-failed", "task-revoked", "task-retried")


@pytest.fixture(autouse=True)
def events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engine, "make_app", make_app_with_events)


def ends_of(monitor: TaskMonitor) -> dict[str, list[tuple[str, Mapping[str, Any]]]]:
    """Return the ends of tasks, by the name that Flower shows."""
    names = {event["uuid"]: event["name"] for event in monitor.events if event["type"] == "task-received"}
    ends: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for event in monitor.events:
        if event["type"] in ENDS and event["uuid"] in names:
            ends.setdefault(names[event["uuid"]], []).append((event["type"], event))
    return ends


def test_failed_node_is_a_failed_task_with_its_error(bench: Bench, celery_worker: CeleryWorker):  # noqa: F811
    def fail(ctx: NodeContext) -> Finished:
        raise NodeFailure("The file is not there.")

    bench.does(compute=fail)
    with celery_worker() as engine, monitor_tasks(engine.app) as monitor:
        run = bench.start("begin -> compute")
        until(lambda: run.status == "failed")
        until(lambda: "node:Compute" in ends_of(monitor))

    ((kind, event),) = ends_of(monitor)["node:Compute"]
    assert kind == "task-failed"
    assert "The file is not there." in event["exception"]


def test_cancelled_node_is_a_revoked_task(bench: Bench, celery_worker: CeleryWorker):  # noqa: F811
    bench.does(work=wait_long)
    with celery_worker() as engine, monitor_tasks(engine.app) as monitor:
        run = bench.start("begin -> work")
        until(lambda: run.statuses.get("work") == "running")
        engine.lifecycle.cancel_run(bench.tenant_id, run.id)
        until(lambda: run.status == "cancelled")
        until(lambda: "node:Act" in ends_of(monitor))

    ((kind, _),) = ends_of(monitor)["node:Act"]
    assert kind == "task-revoked"


def test_released_node_is_a_retried_task_and_the_next_attempt_its_child(
    bench: Bench,
    celery_worker: CeleryWorker,  # noqa: F811
):
    attempts: list[int] = []

    async def work(ctx: NodeContext) -> Finished:
        attempts.append(len(attempts))
        if len(attempts) == 1:
            (own,) = [each for each in worker.leases.attempts() if each.activation_id == run.activation("work").id]
            own.stop("shutdown", worker.loop)
            await asyncio.sleep(60)
        return Finished({})

    bench.does(work=work)
    with celery_worker() as engine, monitor_tasks(engine.app) as monitor:
        worker = engine.worker
        run = bench.start("begin -> work")
        until(lambda: run.status == "succeeded")
        until(lambda: len(ends_of(monitor).get("node:Act", ())) == 2)

    (first, retried), (second, _) = ends_of(monitor)["node:Act"]
    received = {
        event["uuid"]: event
        for event in monitor.events
        if event["type"] == "task-received" and event["name"] != QUEUE_PROBE  # which belongs to no run
    }
    activation_id = str(run.activation("work").id)
    assert (first, retried["uuid"], second) == ("task-retried", activation_id, "task-succeeded")
    children = [event["name"] for event in received.values() if event.get("parent_id") == activation_id]
    assert sorted(children) == ["node:Act", "scheduler.advance"]
    assert received[activation_id]["parent_id"] == str(run.activation("begin").id)
    assert {event["root_id"] for event in received.values()} == {str(run.id)}


def test_node_that_waits_for_a_person_says_so(bench: Bench, celery_worker: CeleryWorker):  # noqa: F811
    with celery_worker() as engine, monitor_tasks(engine.app) as monitor:
        run = bench.start("begin -> form", form=FORM)
        until(lambda: run.status == "waiting")
        until(lambda: "node:UserFillUp" in ends_of(monitor))

    ((kind, event),) = ends_of(monitor)["node:UserFillUp"]
    assert (kind, event["result"]) == ("task-succeeded", "'waits for a person'")


def test_inline_advance_is_a_task_of_the_run_beside_its_node(bench: Bench, celery_worker: CeleryWorker):  # noqa: F811
    with celery_worker() as engine, monitor_tasks(engine.app) as monitor:
        run = bench.start("begin -> compute")
        until(lambda: run.status == "succeeded")
        until(lambda: len(ends_of(monitor).get("scheduler.advance", ())) == 2)

    received = [event for event in monitor.events if event["type"] == "task-received"]
    advances = [event for event in received if event["name"] == "scheduler.advance"]
    assert {event["root_id"] for event in advances} == {str(run.id)}
    assert {event["parent_id"] for event in advances} == {str(row.id) for row in run.activations}
    assert all(event["runtime"] > 0 for _, event in ends_of(monitor)["scheduler.advance"])


def test_revoked_task_ends_its_running_node_as_cancelled_by_an_operator(
    bench: Bench,
    celery_worker: CeleryWorker,  # noqa: F811
):
    bench.does(work=wait_long)
    with celery_worker() as engine, monitor_tasks(engine.app) as monitor:
        run = bench.start("begin -> work")
        until(lambda: run.statuses.get("work") == "running")
        engine.app.control.revoke(str(run.activation("work").id), terminate=True)
        until(lambda: run.status == "failed")
        until(lambda: "node:Act" in ends_of(monitor))

    assert run.row["error"].endswith("Cancelled by an operator, who revoked the task of this node.")
    ((kind, _),) = ends_of(monitor)["node:Act"]
    assert kind == "task-revoked"


def test_task_revoked_before_it_begins_ends_its_node_when_it_comes(bench: Bench, celery_worker: CeleryWorker):  # noqa: F811
    executed: list[str] = []
    run_ids: list[RunId] = []

    async def work(ctx: NodeContext) -> Finished:
        executed.append(ctx.node_id)
        return Finished({})

    async def revoke_the_next(ctx: NodeContext) -> Finished:
        until(lambda: run_ids)
        next_id = activation_id(run_ids[0], "work", (), 0)
        app.control.revoke(str(next_id), reply=True, timeout=5, limit=1)
        return Finished({})

    bench.does(first=revoke_the_next, work=work)
    with celery_worker() as engine:
        app = engine.app
        run = bench.start("begin -> first -> work")
        run_ids.append(run.id)
        until(lambda: run.status in ("failed", "succeeded"))

    assert (run.status, executed) == ("failed", [])
    assert run.row["error"].endswith("Cancelled by an operator, who revoked the task of this node.")


async def wait_long(ctx: NodeContext) -> Finished:
    await asyncio.sleep(60)
    return Finished({})
