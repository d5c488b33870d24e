"""Tools keep the rate limits of their vendors over all workers, and hold no thread during a long wait."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from components.tools.academic.arxiv import RATE_LIMIT as PREPRINTS
from components.tools.academic.pubmed import RATE_LIMIT as ARTICLES
from providers.models.chat.scripted import Script
from providers.rate_limits import MINUTE, VendorRateLimit
from scheduler.sweeper.sweeper import Sweeper
from tests.builders import content
from tests.integration.engine import REDIS_AWAY, Bench, Run, at_work, until
from tests.integration.worker.short_rate_windows import expire_rate_limit_waits
from worker.services.factory import ServiceConfig
from worker.worker import Worker

FEED = """<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>1v1</id><title>Widgets</title>
<summary>We study widgets.</summary></entry></feed>"""
FOUND = "<eSearchResult><IdList><Id>1</Id></IdList></eSearchResult>"
ARTICLE = """<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>1</PMID>
<Article><ArticleTitle>Widgets in mice</ArticleTitle></Article></MedlineCitation></PubmedArticle></PubmedArticleSet>"""
CLOCK_TOLERANCE = 0.01  # seconds by which two clocks may differ
BODIES = {"query": FEED, "esearch.fcgi": FOUND, "efetch.fcgi": ARTICLE}


@dataclass
class Vendor:
    """A vendor of preprints and articles that records its requests. A minute of its limits takes `minute` seconds."""

    bench: Bench
    server: HTTPServer
    minute: float = 5.0
    refusals: list[Response] = field(default_factory=list[Response])
    began: float = 0.0  # before any request could be sent
    requests: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])  # time and path

    def answer(self, request: Request) -> Response:
        name = request.path.rpartition("/")[2]
        self.requests.append((time.monotonic(), name))
        return self.refusals.pop(0) if self.refusals else Response(BODIES[name])

    def worker(self, **more: Any) -> Worker:
        """Create a worker that uses this vendor."""
        base_urls = {name: self.server.url_for("") for name in ("ARXIV", "PUBMED")}
        return self.bench.a_worker(services=ServiceConfig(base_urls=base_urls), rate_window=self.minute, **more)

    def start_search(self, tool: str = "ArXiv", **params: Any) -> Run:
        """Start a run that searches once."""
        node = {"component": tool, "query": "widgets", **params}
        return self.bench.start("begin -> search -> say", search=node, say=content("{search@formalized_content}"))

    def scaled(self, seconds: float) -> float:
        """Convert seconds of the vendor to seconds of the test."""
        return seconds * self.minute / MINUTE

    def work(self, runs: Sequence[Run], *workers: Worker) -> None:
        """Execute the runs on these workers, with a thread for each, until all have succeeded."""
        self.began = time.monotonic()
        with at_work(self.bench, *workers, threads=len(runs)):
            until(lambda: all(run.status == "succeeded" for run in runs))

    def early_requests(self, rate_limit: VendorRateLimit) -> list[float]:
        """Return the times of the requests that were too early for a rate limit, in seconds after the beginning.

        Each is measured from the beginning and not from the previous request, because a busy machine may deliver one
        request late and the next in time.
        """
        after = [at - self.began for at, _ in self.requests]
        span = self.scaled(rate_limit.seconds)
        return [at for number, at in enumerate(after) if at < number // rate_limit.requests * span - CLOCK_TOLERANCE]


@pytest.fixture
def vendor(bench: Bench, httpserver: HTTPServer) -> Vendor:
    vendor = Vendor(bench, httpserver)
    httpserver.expect_request(re.compile(".*")).respond_with_handler(vendor.answer)
    return vendor


def test_two_workers_share_the_rate_limit_of_a_vendor(vendor: Vendor):
    runs = [vendor.start_search() for _ in range(6)]

    vendor.work(runs, vendor.worker(), vendor.worker())

    assert len(vendor.requests) == 6
    assert vendor.early_requests(PREPRINTS) == []
    assert "We study widgets." in runs[0].text
    assert [run.activation("search").attempt for run in runs] == [1] * 6


def test_both_requests_of_a_search_count_against_the_rate_limit(vendor: Vendor):
    vendor.minute = 20.0
    runs = [vendor.start_search("PubMed") for _ in range(4)]

    vendor.work(runs, vendor.worker(), vendor.worker())

    assert sorted(name for _, name in vendor.requests) == ["efetch.fcgi"] * 4 + ["esearch.fcgi"] * 4
    assert vendor.early_requests(ARTICLES) == []


def test_tenants_with_their_own_keys_have_separate_rate_limits(vendor: Vendor):
    vendor.minute = MINUTE
    runs = [vendor.start_search("PubMed", api_key=f"key-{number}-0123456789") for number in range(3)]

    with at_work(vendor.bench, vendor.worker(), threads=3):
        until(lambda: all(run.status == "succeeded" for run in runs))

    assert [run.activation("search").attempt for run in runs] == [1] * 3
    with redis.Redis.from_url(vendor.bench.redis_url) as client:
        assert len(client.keys("easel:pace:*:state")) == 3
        assert "0123456789" not in str(client.keys("*"))


def test_search_with_a_long_rate_limit_wait_is_released_and_enqueued_when_due(vendor: Vendor):
    vendor.minute = MINUTE
    first, second = vendor.start_search(), vendor.start_search()
    worker = vendor.worker()
    vendor.bench.play(worker)

    waiting = second.activation("search")
    assert (first.status, waiting.status, waiting.crash_count, len(vendor.requests)) == ("succeeded", "ready", 0, 1)
    assert 0 < (waiting.not_before - datetime.now(UTC)).total_seconds() < PREPRINTS.seconds

    make_due_and_sweep(vendor.bench, second)
    vendor.bench.play(worker)

    assert (second.status, second.activation("search").attempt, len(vendor.requests)) == ("succeeded", 2, 2)


def test_agent_released_by_the_rate_limiter_repeats_no_recorded_tool_call(vendor: Vendor):
    vendor.minute = MINUTE
    calls = [{"name": "arxiv_search_0", "arguments": {"query": query}} for query in ("mice", "men")]
    vendor.bench.script = Script([*({"tool_calls": [call], "times": 1} for call in calls), {"reply": "Fine."}])
    tools = [{"component_name": "ArXiv", "name": "ArXiv", "params": {}}]
    agent = {"component": "Agent", "llm_id": "scripted", "tools": tools}
    agent["prompts"] = [{"role": "user", "content": "How are widgets?"}]
    run, worker = (
        vendor.bench.start("begin -> model -> say", model=agent, say=content("{model@content}")),
        vendor.worker(),
    )
    vendor.bench.play(worker)
    assert (run.activation("model").status, len(vendor.requests)) == ("ready", 1)

    make_due_and_sweep(vendor.bench, run)
    vendor.bench.play(worker)

    assert (run.status, len(vendor.requests)) == ("succeeded", 2)
    assert run.text.endswith("Fine.")


def test_rate_limit_wait_does_not_count_towards_the_time_limit_of_a_tool(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch
):
    vendor.minute = 40.0
    monkeypatch.setattr("worker.context.rate_limit_wait.MAX_WAIT_IN_PLACE", 2000.0)  # so that no activation is released
    runs = [vendor.start_search() for _ in range(4)]
    limit = 2 * vendor.scaled(PREPRINTS.seconds)  # the last run waits for three intervals

    def time_limit(*_: Any) -> float:
        return limit

    began = time.monotonic()
    with at_work(vendor.bench, vendor.worker(time_limit=time_limit), threads=4):
        until(lambda: all(run.status in ("succeeded", "failed") for run in runs))

    assert [run.status for run in runs] == ["succeeded"] * 4
    assert vendor.requests[-1][0] - began > limit


def test_cancelled_run_ends_its_rate_limit_wait_and_sends_no_request(vendor: Vendor, monkeypatch: pytest.MonkeyPatch):
    vendor.minute = MINUTE * 1000 / PREPRINTS.seconds
    # so that the activation of the second run is not released
    monkeypatch.setattr("worker.context.rate_limit_wait.MAX_WAIT_IN_PLACE", 2000.0)
    counted: list[str] = []
    counters = vendor.bench.coordinator.dispatch.counters
    vendor.bench.coordinator.dispatch.counters = replace(
        counters, count_rate_limit_wait=lambda: counted.append("waited")
    )
    first, second = vendor.start_search(), vendor.start_search()

    with at_work(vendor.bench, vendor.worker(), threads=2):
        until(lambda: bool(counted and vendor.requests))
        vendor.bench.lifecycle.cancel_run(vendor.bench.tenant_id, second.id)
        vendor.bench.lifecycle.cancel_run(vendor.bench.tenant_id, first.id)
        until(lambda: {first.status, second.status} <= {"cancelled", "succeeded"})

    assert counted == ["waited"]
    assert len(vendor.requests) == 1


def test_retry_after_of_a_vendor_delays_every_worker(vendor: Vendor):
    vendor.minute = 2.0
    vendor.refusals = [Response("slowly", 429, {"Retry-After": "1"})]
    one, other = vendor.worker(), vendor.worker()
    first = vendor.start_search()
    began = time.monotonic()
    vendor.bench.play(one)

    second = vendor.start_search()
    vendor.bench.play(other)

    assert (first.status, second.status) == ("failed", "succeeded")
    assert vendor.requests[1][0] - began >= 0.99


def test_each_process_keeps_the_rate_limit_itself_while_redis_is_unavailable(vendor: Vendor):
    vendor.minute = 10.0
    vendor.bench.redis_url = REDIS_AWAY
    runs = [vendor.start_search() for _ in range(4)]

    vendor.work(runs, vendor.worker())

    assert len(vendor.requests) == 4
    assert vendor.early_requests(PREPRINTS) == []


def make_due_and_sweep(bench: Bench, run: Run) -> None:
    """Make the waiting activation of a run due, and run a tick of the sweeper."""
    expire_rate_limit_waits(bench, run)
    Sweeper(bench.coordinator).tick()
