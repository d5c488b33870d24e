"""Model calls wait for the rate limits of their account, and hold no lease and no thread during a long wait."""

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
from providers.models.vendors.accounts import AccountModel, VendorAccount
from providers.rate_limits import RateLimits
from scheduler.metrics import Metrics
from scheduler.sweeper.sweeper import Sweeper
from store.monitoring import wait_facts
from tests.builders import content
from tests.integration.engine import REDIS_AWAY, Bench, Run, at_work, until
from tests.integration.worker import test_agent_over_the_wire as agents
from tests.integration.worker.scripted_vendor import said, vendor_of
from tests.integration.worker.short_rate_windows import expire_rate_limit_waits
from worker.context.rate_limit_wait import RESCHEDULE_EARLY

MODEL = "m@OpenAI-API-Compatible"
MUCH = 10**9
ONE_A_MINUTE = RateLimits(requests_per_minute=1)


def test_activation_with_a_long_rate_limit_wait_is_released_and_enqueued_when_due(bench: Bench):
    with limited_model() as served:
        bench.accounts = [served.account(ONE_A_MINUTE)]
        first, second = start_model_call(bench), start_model_call(bench)
        bench.play()
        began = datetime.now(UTC)

        waiting = second.activation("model")

        assert (first.status, first.text) == ("succeeded", "word " * 20)
        assert (waiting.status, waiting.crash_count, waiting.lease_id, waiting.enqueued_at) == ("ready", 0, None, None)
        assert 50 < (waiting.not_before - began).total_seconds() < 60 + RESCHEDULE_EARLY
        assert len(served.server.admitted) == 1

        expire_rate_limit_waits(bench, second)
        Sweeper(bench.coordinator).tick()
        bench.play()

    assert (second.status, second.text) == ("succeeded", "word " * 20)
    assert (second.activation("model").attempt, second.activation("model").crash_count) == (2, 0)
    assert "message_reset" not in second.event_names
    assert second.row["usage"]["calls"] == 1


def test_explanation_of_a_run_names_the_rate_limit_and_its_due_time(bench: Bench):
    with limited_model() as served:
        bench.accounts = [served.account(ONE_A_MINUTE)]
        start_model_call(bench)
        run = start_model_call(bench)
        bench.play()

    with bench.database.transaction() as tx:
        facts = wait_facts.load_facts(tx, bench.tenant_id, run.id)
        assert facts is not None
        canvas = bench.coordinator.versions.canvas(tx, facts[1])
    wait = explain(facts[0], canvas, lambda _: 60.0).wait

    assert wait.kind.value == "time"
    assert "model waits for the allowance of OpenAI-API-Compatible (default), and is due in " in wait.sentence
    assert wait.until == run.activation("model").not_before


def test_agent_released_by_the_rate_limiter_continues_after_its_recorded_rounds(bench: Bench):
    with vendor_of(agents.tool_call_deltas(*agents.CALLS), said("They rose by 4%.")) as served:
        bench.accounts = [replace(served.account, rate_limits=ONE_A_MINUTE)]
        run, worker = agents.start_agent(bench), bench.a_worker(services=served.services)
        bench.play(worker)

        waiting = run.activation("model")
        assert (waiting.status, len(served.requests), len(served.queries)) == ("ready", 1, 2)

        expire_rate_limit_waits(bench, run)
        Sweeper(bench.coordinator).tick()
        bench.play(worker)

    assert run.status == "succeeded"
    assert run.text.endswith("They rose by 4%.")
    assert (len(served.requests), len(served.queries)) == (2, 2)
    assert run.activation("model").crash_count == 0


def test_run_that_waits_for_a_rate_limit_is_cancelled_at_once(bench: Bench):
    with limited_model() as served:
        bench.accounts = [served.account(ONE_A_MINUTE)]
        start_model_call(bench)
        run = start_model_call(bench)
        bench.play()

        bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert run.status == "cancelled"
    assert len(served.server.admitted) == 1


def test_short_rate_limit_wait_does_not_release_the_activation(bench: Bench):
    with limited_model() as served:
        bench.accounts = [served.account(RateLimits(requests_per_minute=120))]
        runs = [start_model_call(bench) for _ in range(3)]

        began = time.monotonic()
        bench.play()

    assert [run.status for run in runs] == ["succeeded"] * 3
    assert [run.activation("model").attempt for run in runs] == [1] * 3
    last_admitted_at, _ = served.server.admitted[2]
    assert last_admitted_at - began > 0.9, "a call every half second"


def test_call_after_an_unrecorded_answer_waits_without_releasing_the_activation(bench: Bench):
    with limited_model() as served:
        bench.accounts = [served.account(RateLimits(requests_per_minute=20))]
        structured = {"structured": {"type": "object", "properties": {"a": {"type": "string"}}}}
        # the answer is not JSON, so the model is called twice
        run = start_model_call(bench, outputs=structured, max_retries=1)

        began = time.monotonic()
        bench.play()

    assert time.monotonic() - began > 2.5
    assert len(served.server.admitted) == 2
    assert run.activation("model").attempt == 1


def test_rate_limit_refusal_delays_the_calls_of_every_worker(bench: Bench):
    with limited_model(requests=1, window=60.0) as served:
        bench.accounts = [served.account(RateLimits(requests_per_minute=600))]
        one, other = bench.a_worker(), bench.a_worker()
        runs = [start_model_call(bench, max_retries=0) for _ in range(3)]
        bench.play(one, until=lambda: bool(served.server.refused))

        bench.play(other)

    assert [run.activation("model").status for run in runs] == ["done", "done", "ready"]
    assert len(served.server.refused) == 1


def test_account_without_rate_limits_uses_no_redis_keys(bench: Bench, redis_url: str):
    with limited_model() as served:
        bench.accounts = [served.account(RateLimits())]
        run = start_model_call(bench)
        bench.play()

    with redis.Redis.from_url(redis_url) as client:
        assert run.status == "succeeded"
        assert client.keys("easel:pace:*") == []


def test_model_calls_continue_while_redis_is_unavailable(bench: Bench):
    with limited_model() as served:
        bench.accounts = [served.account(RateLimits(requests_per_minute=600, concurrency=1))]
        bench.redis_url = REDIS_AWAY
        runs = [start_model_call(bench) for _ in range(2)]

        bench.play()

    assert [run.status for run in runs] == ["succeeded"] * 2


def test_rate_limit_waits_and_refusals_are_counted(bench: Bench):
    counted: list[str] = []

    def count(what: str) -> Callable[[], None]:
        return lambda: counted.append(what)

    bench.coordinator.dispatch.counters = Metrics(
        count_rate_limit_wait=count("waited"),
        postponed=count("postponed"),
        count_rate_limit_refusal=count("refused"),
    )
    with limited_model(requests=1) as served:
        bench.accounts = [served.account(RateLimits(requests_per_minute=100))]
        for _ in range(3):
            start_model_call(bench, max_retries=0)
        bench.play()
        until(lambda: set(counted) == {"waited", "refused", "postponed"})


@pytest.mark.long
@pytest.mark.timeout(120)
def test_eight_workers_use_one_rate_limit_fully_and_few_calls_are_refused(bench: Bench):
    """A minute takes five seconds here, so the network delay of a request weighs more than in a real minute."""
    window, allowed = 5.0, 50
    with limited_model(requests=allowed, window=window, delay=0.05) as served:
        bench.accounts = [served.account(RateLimits(requests_per_minute=allowed))]
        workers = [bench.a_worker(rate_window=1.02 * window) for _ in range(8)]
        runs = [start_model_call(bench) for _ in range(int(2.6 * allowed))]
        with sweeping(bench), at_work(bench, *workers, threads=8):
            until(lambda: served.server.admitted)
            began = served.server.admitted[0][0]
            until(lambda: time.monotonic() > began + 2.2 * window)

    later = [at for at, _ in served.server.admitted if began + window <= at < began + 2.2 * window]
    assert len(later) >= 0.85 * 1.2 * allowed
    assert len([at for at in served.server.refused if at >= began + window]) <= 0.02 * len(later)
    assert sum(run.activation("model").crash_count for run in runs if "model" in run.statuses) == 0


# -- helpers ---------------------------------------------------------------------------------------------------------
@dataclass
class LimitedModel:
    port: int
    server: RateLimitedServer

    def account(self, rates: RateLimits) -> VendorAccount:
        address = f"http://127.0.0.1:{self.port}/v1"
        models = {"m": AccountModel()}
        return VendorAccount("OpenAI-API-Compatible", base_url=address, api_key="key", models=models, rate_limits=rates)


@contextmanager
def limited_model(
    *, requests: int = MUCH, tokens: int = MUCH, window: float = 60.0, delay: float = 0.0
) -> Generator[LimitedModel]:
    """Run a provider that enforces rate limits, until the block ends."""
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
        yield LimitedModel(started[0].sockets[0].getsockname()[1], server)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        serving.join(5)
        started[0].close()
        loop.close()


@contextmanager
def sweeping(bench: Bench) -> Generator[None]:
    """Run the sweeper until the block ends."""
    stop = threading.Event()
    thread = threading.Thread(target=Sweeper(bench.coordinator).run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


def start_model_call(bench: Bench, **params: object) -> Run:
    """Start a run that calls the model once and streams its answer."""
    return bench.start("begin -> model -> say", model={"llm_id": MODEL, **params}, say=content("{model@content}"))
