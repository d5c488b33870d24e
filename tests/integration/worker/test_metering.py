"""Calls to embedding, rerank and other models outside of chat nodes: rate limits, budgets and usage."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from canvas.budget import EXCEEDED, parse_limits, usage_json
from knowledge.models import TenantModels
from providers.address_policy import Guard
from providers.models.chat.catalogue import RequestLimits
from providers.models.limits.rate_limiter import RateLimiter
from providers.models.transport.clients import close_connections
from providers.rate_limits import RateLimits
from scheduler.coordinator.run_start import RunRequest
from scheduler.messaging.circuit_breaker import CircuitBreaker
from scheduler.messaging.redis_bus import async_redis
from scheduler.metrics import Metrics
from scheduler.sweeper.sweeper import Sweeper
from store.tenants import budgets
from store.tenants.budgets import BudgetLimits
from tests.builders import content
from tests.integration.engine import Bench, Run
from tests.integration.knowledge_bases import EMBEDDING, RANKS, KnowledgeTenant, Vendor, vendor
from tests.integration.worker.short_rate_windows import expire_rate_limit_waits
from worker.services.factory import ServiceConfig
from worker.worker import Worker

ANSWER = "Refunds take five days, after which the money is there."
ONE_A_MINUTE = RateLimits(requests_per_minute=1)


@pytest.fixture
def served() -> Iterator[Vendor]:
    with vendor() as served:
        yield served


def worker_with_knowledge_base(
    bench: Bench, served: Vendor, folder: Path, model: str = EMBEDDING, **account: Any
) -> Worker:
    """Return a worker and its knowledge base of one document; `account` changes the account after the ingestion."""
    bench.accounts = [served.account]
    shop = KnowledgeTenant(bench.database, bench.tenant_id, folder, bench.accounts)
    shop.add(shop.base(model=model), "refunds.txt", ANSWER, year=2024)
    shop.read()
    bench.accounts = [replace(served.account, **account)]
    return bench.a_worker(blobs=shop.blobs, services=ServiceConfig(guard=Guard.parse(allowed="127.0.0.1")))


def today() -> date:
    return datetime.now(UTC).date()


def start_search(bench: Bench, budget: dict[str, Any] | None = None, **retrieval: Any) -> Run:
    params = {"component": "Retrieval", "query": "{sys.query}", "dataset_ids": ["Policies"], **retrieval}
    start = bench.a_start(
        "begin -> work -> say", query="How long do refunds take?", work=params, say=content("{work@json}")
    )
    return bench.start_run(replace(start, budget=parse_limits(budget)) if budget else start)


def usage_of(run: Run) -> dict[str, Any]:
    return usage_json(run.row["usage"])


def test_usage_of_a_search_counts_its_embedding_and_rerank_calls(bench: Bench, served: Vendor, tmp_path: Path):
    prices = {"vectors": {"input": 1, "output": 0}, "ranks": {"input": 0, "output": 0, "requests": 2}}
    worker = worker_with_knowledge_base(bench, served, tmp_path, extra={"prices": prices})
    run = start_search(bench, rerank_id=RANKS)
    bench.play(worker)

    usage = usage_of(run)
    ranked = usage["kinds"]["rerank"]["tokens"]
    assert run.status == "succeeded"
    assert usage["kinds"] == {"embedding": {"calls": 1, "tokens": 7}, "rerank": {"calls": 1, "tokens": ranked}}
    assert ranked > 0
    assert (usage["calls"], usage["total_tokens"]) == (2, 7 + ranked)
    assert usage["cost"] == {"USD": 0.002007}


def test_chat_call_of_a_search_counts_in_usage_and_budget(bench: Bench, served: Vendor, tmp_path: Path):
    worker = worker_with_knowledge_base(bench, served, tmp_path, "echo")
    served.answers += ["Wie lange dauern Erstattungen?"]
    run = start_search(bench, cross_languages=["German"])
    stopped = start_search(bench, {"calls": 0}, cross_languages=["German"])
    bench.play(worker)

    assert len(served.chatted) == 1
    assert usage_of(run)["calls"] == 2
    assert usage_of(run)["kinds"]["embedding"]["calls"] == 1
    assert (stopped.status, usage_of(stopped).get("calls", 0)) == ("waiting", 0)


def test_search_that_waits_for_the_embedding_rate_limit_is_released(bench: Bench, served: Vendor, tmp_path: Path):
    worker = worker_with_knowledge_base(bench, served, tmp_path, rate_limits=ONE_A_MINUTE)
    embedded = len(served.embedded)
    first, second = start_search(bench), start_search(bench)
    bench.play(worker)

    done, waiting = sorted((first, second), key=lambda run: run.status != "succeeded")
    assert done.status == "succeeded"
    assert (waiting.activation("work").status, waiting.activation("work").crash_count) == ("ready", 0)
    assert len(served.embedded) == embedded + 1

    expire_rate_limit_waits(bench, waiting)
    Sweeper(bench.coordinator).tick()
    bench.play(worker)

    assert waiting.status == "succeeded"
    assert len(served.embedded) == embedded + 2
    assert usage_of(waiting)["kinds"]["embedding"]["calls"] == 1


def test_search_that_exceeds_its_budget_waits_and_continues_with_a_higher_budget(
    bench: Bench, served: Vendor, tmp_path: Path
):
    worker = worker_with_knowledge_base(bench, served, tmp_path)
    embedded = len(served.embedded)
    run = start_search(bench, {"tokens": 2})
    bench.play(worker)

    assert run.status == "waiting"
    (form,) = run.row["state"]["forms"].values()
    (field,) = form[3].values()
    assert (field["budget"]["code"], field["budget"]["model"]) == (EXCEEDED, EMBEDDING)
    assert len(served.embedded) == embedded

    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(), budget=parse_limits({"tokens": 1000}))
    bench.play(worker)

    assert run.status == "succeeded"
    with bench.database.transaction() as tx:
        (budget,) = budgets.list_budgets(tx, bench.tenant_id, today(), [run.id])
    assert (budget.account.spent, budget.account.reserved) == (7, 0)


def test_document_ingestion_is_charged_to_the_budgets_of_the_tenant(bench: Bench, served: Vendor, tmp_path: Path):
    bench.accounts = [served.account]
    shop = KnowledgeTenant(bench.database, bench.tenant_id, tmp_path, bench.accounts)
    with bench.database.transaction() as tx:
        budgets.put_limits(tx, bench.tenant_id, BudgetLimits("day", bench.tenant_id, parse_limits({"calls": 1})))
        budgets.put_limits(tx, bench.tenant_id, BudgetLimits("tenant", bench.tenant_id, parse_limits({"tokens": 1000})))
    base = shop.base(model=EMBEDDING)
    first = shop.add(base, "first.txt", ANSWER)
    shop.read()
    second = shop.add(base, "second.txt", "Holidays are thirty days a year.")
    shop.read()

    with bench.database.transaction() as tx:
        spent = {each.account.scope: each.account.spent for each in budgets.list_budgets(tx, bench.tenant_id, today())}
    assert (shop.document(first).status, shop.document(second).status) == ("done", "failed")
    assert "The tenant's budget of the day (UTC) of 1 call is used up" in shop.document(second).error
    assert len(served.embedded) == 1
    assert spent == {"day": 1, "tenant": 7}


def test_document_that_waits_too_long_for_the_rate_limit_is_requeued_and_counts_no_try(
    bench: Bench, served: Vendor, tmp_path: Path
):
    accounts = [replace(served.account, rate_limits=ONE_A_MINUTE)]
    shop = KnowledgeTenant(bench.database, bench.tenant_id, tmp_path, accounts)
    base = shop.base(model=EMBEDDING)
    documents = [shop.add(base, f"{name}.txt", f"{ANSWER} {name}") for name in ("first", "second")]

    async def read() -> None:
        rate_limiter = RateLimiter(async_redis(bench.redis_url), CircuitBreaker(), Metrics())
        models = TenantModels(bench.database, accounts, RequestLimits(), None, rate_limiter=rate_limiter, max_wait=0.0)
        try:
            while await shop.ingestion(models=models).next(bench.tenant_id):
                pass
        finally:
            await close_connections()
            await rate_limiter.close()

    asyncio.run(read())

    done, waiting = sorted(map(shop.document, documents), key=lambda document: document.status)
    with bench.database.transaction() as tx:
        tries = tx.scalar(text("select tries from knowledge_documents where id = :id"), id=waiting.id)
    assert (done.status, waiting.status, tries) == ("done", "pending", 0)
    assert "The rate limits of OpenAI-API-Compatible (default) did not allow a request in time" in waiting.error
    assert len(served.embedded) == 1
