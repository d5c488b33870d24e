"""Who kills workers fails after the third, and takes no innocent along."""

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

INNOCENTS = 127
FOR_EVER = 3600.0

READY = select(rows.c.run_id, rows.c.id).where(rows.c.status == "ready")
HELD = select(func.count()).where(rows.c.status == "running")
SILENT = text("update activations set lease_until = now() - interval '1 s' where status = 'running'")


def test_poison_task_fails_after_three_crashes_and_no_other_activation_does(bench: Bench):
    innocents = [f"work{number}" for number in range(INNOCENTS)]
    quiet, killed = threading.Event(), threading.Event()

    async def innocent(ctx: NodeContext) -> Finished:
        if not quiet.is_set():
            await asyncio.sleep(FOR_EVER)
        return Finished()

    async def kill(ctx: NodeContext) -> None:
        killed.set()
        await asyncio.sleep(FOR_EVER)

    bench.does(killer=kill, **dict.fromkeys(innocents, innocent))
    honest = bench.start(f"begin -> {', '.join(innocents)}")
    guilty = bench.start("begin -> killer")
    bench.play(until=lambda: {"killer", innocents[0]} <= {**honest.statuses, **guilty.statuses}.keys())
    bench.outbox.lose()

    for death in range(3):
        if death == 2:
            quiet.set()  # now they come to their end, if they are let
        with a_life(bench, threads=INNOCENTS + 1) as worker:
            until(killed.is_set)
            if death < 2:
                until(lambda: holds(bench) == INNOCENTS + 1)
            dies(bench, worker)
        killed.clear()
        for run in (honest, guilty):
            bench.coordinator.advance_run(run.id)
    with a_life(bench, threads=8):
        until(lambda: honest.status == "succeeded")

    assert (guilty.status, guilty.row["error"]) == ("failed", "Node killer (Act): The worker was lost.")
    assert (guilty.activation("killer").attempt, guilty.activation("killer").strikes) == (3, 3)
    assert max(row.strikes for row in honest.activations) == 2


def test_poison_task_in_an_iteration_fails_only_its_own_run(bench: Bench):
    killed = threading.Event()

    async def kill(ctx: NodeContext) -> None:
        killed.set()
        await asyncio.sleep(FOR_EVER)

    bench.does(killer=kill)
    other = bench.start("begin -> work")
    guilty = bench.start(
        "begin -> each", "each: item -> killer", each={"items_ref": "env.items"}, variables={"items": [1]}
    )
    bench.play(until=lambda: "killer" in guilty.statuses and other.status == "succeeded")

    for _ in range(3):
        with a_life(bench, threads=2) as worker:
            until(killed.is_set)
            dies(bench, worker)
        killed.clear()
        bench.coordinator.advance_run(guilty.id)

    assert (guilty.status, guilty.row["error"]) == ("failed", "Node killer (Act): The worker was lost.")
    assert other.status == "succeeded"


def test_task_that_was_set_aside_has_no_lease_and_no_thread(bench: Bench, two_on_their_last_chance: Run):
    free, begun = threading.Event(), threading.Event()
    bench.does(one=patient(begun, free), two=patient(begun, free))
    run = two_on_their_last_chance

    with ThreadPoolExecutor(1) as other_thread:
        first = other_thread.submit(bench.worker.execute, run.id, run.activation("one").id)
        until(begun.is_set)
        bench.worker.execute(run.id, run.activation("two").id)  # comes back at once
        meanwhile = dict(run.statuses)
        free.set()
        first.result()

    assert (meanwhile["one"], meanwhile["two"]) == ("running", "ready")
    assert (run.statuses["one"], run.statuses["two"]) == ("done", "done")


def test_task_set_aside_by_a_lost_worker_is_sent_again(bench: Bench, two_on_their_last_chance: Run):
    begun, never = threading.Event(), threading.Event()
    bench.does(one=patient(begun, never))
    run = two_on_their_last_chance
    doomed, other = bench.a_worker(), bench.a_worker()
    thread = threading.Thread(target=doomed.execute, args=(run.id, run.activation("one").id), daemon=True)
    thread.start()
    until(begun.is_set)
    doomed.execute(run.id, run.activation("two").id)
    bench.outbox.lose()

    with bench.database.transaction() as tx:
        tx.execute(update(rows).where(rows.c.run_id == run.id).values(hinted_at=None))  # long ago, and a canary is back
    Sweeper(bench.coordinator).tick()
    bench.play(other, until=lambda: not bench.outbox.of(EXECUTE))

    assert run.statuses["two"] == "done"
    never.set()
    thread.join()


def test_hanging_suspect_does_not_block_other_suspects(bench: Bench, two_on_their_last_chance: Run):
    begun, never = threading.Event(), threading.Event()

    def hang(ctx: NodeContext) -> Finished:
        begun.set()
        never.wait()
        return Finished()

    bench.does(one=patient(begun, never), compute=hang)
    run = two_on_their_last_chance
    worker = bench.a_worker(time_limit=limited)
    thread = threading.Thread(target=worker.execute, args=(run.id, run.activation("compute").id), daemon=True)
    thread.start()
    until(begun.is_set)
    until(lambda: run.activation("compute").status != "running")

    worker.execute(run.id, run.activation("two").id)

    assert run.activation("two").status == "done"
    never.set()
    thread.join()


# -- in other words --------------------------------------------------------------------------------------------------
@pytest.fixture
def two_on_their_last_chance(bench: Bench) -> Run:
    """A run whose nodes `one`, `two` and `compute` are ready and have met two deaths each."""
    run = bench.start("begin -> one, two, compute")
    bench.play(until=lambda: "one" in run.statuses)
    bench.outbox.lose()
    with bench.database.transaction() as tx:
        tx.execute(update(rows).where(rows.c.run_id == run.id).values(strikes=2))
    return run


def limited(component: str, asked: float | None = None) -> float:
    return 0.05


def patient(begun: threading.Event, free: threading.Event) -> Callable[[NodeContext], Awaitable[Finished]]:
    async def work(ctx: NodeContext) -> Finished:
        begun.set()
        while not free.is_set():
            await asyncio.sleep(0.005)
        return Finished()

    return work


@contextmanager
def a_life(bench: Bench, *, threads: int) -> Generator[Worker]:
    """A worker process that has been sent everything that is ready."""
    worker = bench.a_worker()
    with ThreadPoolExecutor(threads) as pool:
        for run_id, activation_id in ready(bench):
            pool.submit(worker.execute, run_id, activation_id)
        yield worker
    worker.close()


def dies(bench: Bench, worker: Worker) -> None:
    """What is seen of a process's death: its leases run out, are swept, and nothing more is heard of it."""
    with bench.database.transaction() as tx:
        tx.execute(SILENT)
        sweep_queries.expire_leases(tx)
    worker.leases.release_all()


def ready(bench: Bench) -> list[tuple[UUID, UUID]]:
    with bench.database.transaction() as tx:
        return [(row.run_id, row.id) for row in tx.rows(READY)]


def holds(bench: Bench) -> int:
    with bench.database.transaction() as tx:
        return tx.scalar(HELD)
