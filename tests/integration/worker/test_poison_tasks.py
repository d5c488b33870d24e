"""A poison task fails after three crashes, and no other activation fails with it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID

import pytest
from sqlalchemy import func, select, text, update

from canvas.outcome import Finished
from components.context import NodeContext
from scheduler.messaging.celery_app import EXECUTE
from scheduler.sweeper.sweeper import Sweeper
from store.monitoring import sweep_queries
from store.tables.runs import activations as rows
from tests.integration.engine import Bench, Run, until
from worker.worker import Worker

OTHERS = 127
FOR_EVER = 3600.0

READY = select(rows.c.run_id, rows.c.id).where(rows.c.status == "ready")
COUNT_RUNNING = select(func.count()).where(rows.c.status == "running")
EXPIRE_LEASES = text("update activations set lease_until = now() - interval '1 s' where status = 'running'")


def test_poison_task_fails_after_three_crashes_and_no_other_activation_does(bench: Bench):
    others = [f"work{number}" for number in range(OTHERS)]
    may_end, killed = threading.Event(), threading.Event()

    async def work_when_allowed(ctx: NodeContext) -> Finished:
        if not may_end.is_set():
            await asyncio.sleep(FOR_EVER)
        return Finished()

    async def kill(ctx: NodeContext) -> None:
        killed.set()
        await asyncio.sleep(FOR_EVER)

    bench.does(killer=kill, **dict.fromkeys(others, work_when_allowed))
    healthy = bench.start(f"begin -> {', '.join(others)}")
    poisoned = bench.start("begin -> killer")
    bench.play(until=lambda: {"killer", others[0]} <= {**healthy.statuses, **poisoned.statuses}.keys())
    bench.outbox.lose()

    for crash in range(3):
        if crash == 2:
            may_end.set()  # now the other activations end when they run
        with worker_process(bench, threads=OTHERS + 1) as worker:
            until(killed.is_set)
            if crash < 2:
                until(lambda: running_count(bench) == OTHERS + 1)
            crash_worker(bench, worker)
        killed.clear()
        for run in (healthy, poisoned):
            bench.coordinator.advance_run(run.id)
    with worker_process(bench, threads=8):
        until(lambda: healthy.status == "succeeded")

    assert (poisoned.status, poisoned.row["error"]) == ("failed", "Node killer (Act): The worker was lost.")
    assert (poisoned.activation("killer").attempt, poisoned.activation("killer").crash_count) == (3, 3)
    assert max(row.crash_count for row in healthy.activations) == 2


def test_poison_task_in_an_iteration_fails_only_its_own_run(bench: Bench):
    killed = threading.Event()

    async def kill(ctx: NodeContext) -> None:
        killed.set()
        await asyncio.sleep(FOR_EVER)

    bench.does(killer=kill)
    other = bench.start("begin -> work")
    poisoned = bench.start(
        "begin -> each", "each: item -> killer", each={"items_ref": "env.items"}, variables={"items": [1]}
    )
    bench.play(until=lambda: "killer" in poisoned.statuses and other.status == "succeeded")

    for _ in range(3):
        with worker_process(bench, threads=2) as worker:
            until(killed.is_set)
            crash_worker(bench, worker)
        killed.clear()
        bench.coordinator.advance_run(poisoned.id)

    assert (poisoned.status, poisoned.row["error"]) == ("failed", "Node killer (Act): The worker was lost.")
    assert other.status == "succeeded"


def test_suspected_poison_task_that_was_set_aside_has_no_lease_and_no_thread(
    bench: Bench, run_with_two_crashes_each: Run
):
    may_end, begun = threading.Event(), threading.Event()
    bench.does(one=work_until_released(begun, may_end), two=work_until_released(begun, may_end))
    run = run_with_two_crashes_each

    with ThreadPoolExecutor(1) as other_thread:
        first = other_thread.submit(bench.worker.execute, run.id, run.activation("one").id)
        until(begun.is_set)
        bench.worker.execute(run.id, run.activation("two").id)  # returns at once
        meanwhile = dict(run.statuses)
        may_end.set()
        first.result()

    assert (meanwhile["one"], meanwhile["two"]) == ("running", "ready")
    assert (run.statuses["one"], run.statuses["two"]) == ("done", "done")


def test_suspected_poison_task_set_aside_by_a_lost_worker_is_enqueued_again(
    bench: Bench, run_with_two_crashes_each: Run
):
    begun, never = threading.Event(), threading.Event()
    bench.does(one=work_until_released(begun, never))
    run = run_with_two_crashes_each
    lost, other = bench.a_worker(), bench.a_worker()
    thread = threading.Thread(target=lost.execute, args=(run.id, run.activation("one").id), daemon=True)
    thread.start()
    until(begun.is_set)
    lost.execute(run.id, run.activation("two").id)
    bench.outbox.lose()

    with bench.database.transaction() as tx:
        # as if the activation was enqueued long ago and a queue probe has returned since
        tx.execute(update(rows).where(rows.c.run_id == run.id).values(enqueued_at=None))
    Sweeper(bench.coordinator).tick()
    bench.play(other, until=lambda: not bench.outbox.of(EXECUTE))

    assert run.statuses["two"] == "done"
    never.set()
    thread.join()


def test_hanging_suspected_poison_task_does_not_block_the_others(bench: Bench, run_with_two_crashes_each: Run):
    begun, never = threading.Event(), threading.Event()

    def hang(ctx: NodeContext) -> Finished:
        begun.set()
        never.wait()
        return Finished()

    bench.does(one=work_until_released(begun, never), compute=hang)
    run = run_with_two_crashes_each
    worker = bench.a_worker(time_limit=short_time_limit)
    thread = threading.Thread(target=worker.execute, args=(run.id, run.activation("compute").id), daemon=True)
    thread.start()
    until(begun.is_set)
    until(lambda: run.activation("compute").status != "running")

    worker.execute(run.id, run.activation("two").id)

    assert run.activation("two").status == "done"
    never.set()
    thread.join()


# -- helpers ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def run_with_two_crashes_each(bench: Bench) -> Run:
    """A run whose nodes `one`, `two` and `compute` are ready and have a crash count of two."""
    run = bench.start("begin -> one, two, compute")
    bench.play(until=lambda: "one" in run.statuses)
    bench.outbox.lose()
    with bench.database.transaction() as tx:
        tx.execute(update(rows).where(rows.c.run_id == run.id).values(crash_count=2))
    return run


def short_time_limit(component: str, requested: float | None = None) -> float:
    return 0.05


def work_until_released(
    begun: threading.Event, may_end: threading.Event
) -> Callable[[NodeContext], Awaitable[Finished]]:
    async def work(ctx: NodeContext) -> Finished:
        begun.set()
        while not may_end.is_set():
            await asyncio.sleep(0.005)
        return Finished()

    return work


@contextmanager
def worker_process(bench: Bench, *, threads: int) -> Generator[Worker]:
    """Run a worker that executes all ready activations."""
    worker = bench.a_worker()
    with ThreadPoolExecutor(threads) as pool:
        for run_id, activation_id in ready(bench):
            pool.submit(worker.execute, run_id, activation_id)
        yield worker
    worker.close()


def crash_worker(bench: Bench, worker: Worker) -> None:
    """Simulate the crash of a worker: its leases expire and are swept, and it reports nothing more."""
    with bench.database.transaction() as tx:
        tx.execute(EXPIRE_LEASES)
        sweep_queries.expire_leases(tx)
    worker.leases.release_all()


def ready(bench: Bench) -> list[tuple[UUID, UUID]]:
    with bench.database.transaction() as tx:
        return [(row.run_id, row.id) for row in tx.rows(READY)]


def running_count(bench: Bench) -> int:
    with bench.database.transaction() as tx:
        return tx.scalar(COUNT_RUNNING)
