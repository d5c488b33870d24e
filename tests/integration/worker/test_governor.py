"""Calls to models wait for the allowance of their account, and hold nothing meanwhile."""

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest
import redis

from bench.servers.limited_server import RateLimitedServer
from canvas.events.explain import explain
from providers.models.types.rate_limits import RateLimits
from providers.models.vendors.accounts import AccountModel, VendorAccount
from scheduler.metrics import Metrics
from scheduler.sweeper.sweeper import Sweeper
from store.monitoring import wait_facts
from tests.builders import says
from tests.integration.engine import REDIS_AWAY, Bench, Run, at_work, until
from tests.integration.worker import test_agent_over_the_wire as agents
from tests.integration.worker.paces import nothing_has_left_of_late
from worker.context.rate_limit_wait import RESCHEDULE_EARLY

MODEL = "m@OpenAI-API-Compatible"
MUCH = 10**9
ONE_A_MINUTE = RateLimits(requests_per_minute=1)


def test_a_call_that_must_wait_long_gives_its_place_up_and_is_sent_again_when_it_is_due(bench: Bench):
    with limited() as served:
        bench.accounts = [served.account(ONE_A_MINUTE)]
        first, second = asks(bench), asks(bench)
        bench.play()
        began = datetime.now(UTC)

        waiting = second.activation("model")

        assert (first.status, first.said) == ("succeeded", "word " * 20)
        assert (waiting.status, waiting.strikes, waiting.lease_id, waiting.hinted_at) == ("ready", 0, None, None)
        assert 50 < (waiting.not_before - began).total_seconds() < 60 + RESCHEDULE_EARLY
        assert len(served.server.admitted) == 1

        nothing_has_left_of_late(bench, second)
        Sweeper(bench.coordinator).tick()
        bench.play()

    assert (second.status, second.said) == ("succeeded", "word " * 20)
    assert (second.activation("model").attempt, second.activation("model").strikes) == (2, 0)
    assert "message_reset" not in second.told
    assert second.row["usage"]["calls"] == 1


def test_whoever_asks_is_told_what_a_run_waits_for(bench: Bench):
    with limited() as served:
        bench.accounts = [served.account(ONE_A_MINUTE)]
        asks(bench)
        run = asks(bench)
        bench.play()

    with bench.database.transaction() as tx:
        found = wait_facts.load_facts(tx, bench.tenant_id, run.id)
        assert found is not None
        canvas = bench.coordinator.versions.canvas(tx, found[1])
    wait = explain(found[0], canvas, lambda _: 60.0).wait

    assert wait.kind.value == "time"
    assert "model waits for the allowance of OpenAI-API-Compatible (default), and is due in " in wait.sentence
    assert wait.until == run.activation("model").not_before


def test_an_agent_goes_on_from_the_rounds_it_has_recorded(bench: Bench):
    with agents.vendors(agents.calling(*agents.CALLS), agents.saying("They rose by 4%.")) as served:
        bench.accounts = [replace(served.account, rate_limits=ONE_A_MINUTE)]
        run, worker = agents.started(bench), bench.a_worker(services=served.reach)
        bench.play(worker)

        between = run.activation("model")
        assert (between.status, len(served.asked), len(served.searched)) == ("ready", 1, 2)

        nothing_has_left_of_late(bench, run)
        Sweeper(bench.coordinator).tick()
        bench.play(worker)

    assert run.status == "succeeded"
    assert run.said.endswith("They rose by 4%.")
    assert (len(served.asked), len(served.searched)) == (2, 2)
    assert run.activation("model").strikes == 0


def test_a_run_that_waits_for_an_allowance_is_cancelled_at_once(bench: Bench):
    with limited() as served:
        bench.accounts = [served.account(ONE_A_MINUTE)]
        asks(bench)
        run = asks(bench)
        bench.play()

        bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert run.status == "cancelled"
    assert len(served.server.admitted) == 1


def test_a_short_wait_is_waited_in_place(bench: Bench):
    with limited() as served:
        bench.accounts = [served.account(RateLimits(requests_per_minute=120))]
        runs = [asks(bench) for _ in range(3)]

        bench.play()

    assert [run.status for run in runs] == ["succeeded"] * 3
    assert [run.activation("model").attempt for run in runs] == [1] * 3
    at = [at for at, _ in served.server.admitted]
    assert at[2] - at[0] > 0.9


def test_a_call_behind_an_answer_that_nobody_recorded_waits_where_it_is(bench: Bench):
    with limited() as served:
        bench.accounts = [served.account(RateLimits(requests_per_minute=20))]
        structured = {"structured": {"type": "object", "properties": {"a": {"type": "string"}}}}
        run = asks(bench, outputs=structured, max_retries=1)  # words are no JSON, so it is asked twice

        began = time.monotonic()
        bench.play()

    assert time.monotonic() - began > 2.5
    assert len(served.server.admitted) == 2
    assert run.activation("model").attempt == 1


def test_a_refusal_holds_back_the_calls_of_every_worker(bench: Bench):
    with limited(requests=1, window=60.0) as served:
        bench.accounts = [served.account(RateLimits(requests_per_minute=600))]
        one, other = bench.a_worker(), bench.a_worker()
        runs = [asks(bench, max_retries=0) for _ in range(3)]
        bench.play(one, until=lambda: bool(served.server.refused))

        bench.play(other)

    assert [run.activation("model").status for run in runs] == ["done", "done", "ready"]
    assert len(served.server.refused) == 1


def test_without_limits_nothing_is_asked_of_redis(bench: Bench, redis_url: str):
    with limited() as served:
        bench.accounts = [served.account(RateLimits())]
        run = asks(bench)
        bench.play()

    with redis.Redis.from_url(redis_url) as client:
        assert run.status == "succeeded"
        assert client.keys("easel:pace:*") == []


def test_a_redis_that_is_away_stops_no_call(bench: Bench):
    with limited() as served:
        bench.accounts = [served.account(RateLimits(requests_per_minute=600, concurrency=1))]
        bench.redis_url = REDIS_AWAY
        runs = [asks(bench) for _ in range(2)]

        bench.play()

    assert [run.status for run in runs] == ["succeeded"] * 2


def test_waits_and_refusals_are_counted(bench: Bench):
    counted: list[str] = []

    def counts(what: str) -> Callable[[], None]:
        return lambda: counted.append(what)

    bench.coordinator.dispatch.counters = Metrics(
        count_rate_limit_wait=counts("waited"),
        postponed=counts("postponed"),
        count_rate_limit_refusal=counts("refused"),
    )
    with limited(requests=1) as served:
        bench.accounts = [served.account(RateLimits(requests_per_minute=100))]
        for _ in range(3):
            asks(bench, max_retries=0)
        bench.play()
        until(lambda: set(counted) == {"waited", "refused", "postponed"})


@pytest.mark.timeout(120)
def test_eight_workers_use_one_allowance_and_nothing_is_refused(bench: Bench):
    """A minute of five seconds. A tenth of a second that a request travels is worth more than a real one there."""
    window, allowed = 5.0, 50
    with limited(requests=allowed, window=window, delay=0.05) as served:
        bench.accounts = [served.account(RateLimits(requests_per_minute=allowed))]
        workers = [bench.a_worker(rate_window=1.02 * window) for _ in range(8)]
        runs = [asks(bench) for _ in range(int(2.6 * allowed))]
        with sweeping(bench), at_work(bench, *workers, threads=8):
            until(lambda: served.server.admitted)
            began = served.server.admitted[0][0]
            until(lambda: time.monotonic() > began + 2.2 * window)

    later = [at for at, _ in served.server.admitted if began + window <= at < began + 2.2 * window]
    assert len(later) >= 0.85 * 1.2 * allowed
    assert len([at for at in served.server.refused if at >= began + window]) <= 0.02 * len(later)
    assert sum(run.activation("model").strikes for run in runs if "model" in run.statuses) == 0


# -- in other words --------------------------------------------------------------------------------------------------
@dataclass
class Served:
    port: int
    server: RateLimitedServer

    def account(self, rates: RateLimits) -> VendorAccount:
        address = f"http://127.0.0.1:{self.port}/v1"
        models = {"m": AccountModel()}
        return VendorAccount("OpenAI-API-Compatible", base_url=address, api_key="key", models=models, rate_limits=rates)


@contextmanager
def limited(*, requests: int = MUCH, tokens: int = MUCH, window: float = 60.0, delay: float = 0.0) -> Generator[Served]:
    """A provider with limits of its own, for as long as the block takes."""
    server, loop, started = (
        RateLimitedServer(requests, tokens, window=window, delay=delay),
        asyncio.new_event_loop(),
        [],
    )

    async def begin() -> None:
        started.append(await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=200))

    loop.run_until_complete(begin())
    serving = threading.Thread(target=loop.run_forever, daemon=True)
    serving.start()
    try:
        yield Served(started[0].sockets[0].getsockname()[1], server)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        serving.join(5)
        started[0].close()
        loop.close()


@contextmanager
def sweeping(bench: Bench) -> Generator[None]:
    """The sweeper's ticks, one a second."""
    ending = threading.Event()
    thread = threading.Thread(target=Sweeper(bench.coordinator).run, args=(ending,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(10)


def asks(bench: Bench, **params: object) -> Run:
    """A run whose model is asked once, and heard."""
    return bench.start("begin -> model -> say", model={"llm_id": MODEL, **params}, say=says("{model@content}"))
