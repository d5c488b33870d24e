"""Tools wait for the pace of their vendors, whichever worker asks, and hold nothing meanwhile."""

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
from providers.models.types.rate_limits import MINUTE, VendorRateLimit
from scheduler.sweeper.sweeper import Sweeper
from tests.builders import says
from tests.integration.engine import REDIS_AWAY, Bench, Run, at_work, until
from tests.integration.worker.paces import nothing_has_left_of_late
from worker.services.factory import ServiceConfig
from worker.worker import Worker

FEED = """<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>1v1</id><title>Widgets</title>
<summary>We study widgets.</summary></entry></feed>"""
FOUND = "<eSearchResult><IdList><Id>1</Id></IdList></eSearchResult>"
ARTICLE = """<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>1</PMID>
<Article><ArticleTitle>Widgets in mice</ArticleTitle></Article></MedlineCitation></PubmedArticle></PubmedArticleSet>"""
OF_CLOCKS = 0.01  # seconds that two clocks may differ by
BODIES = {"query": FEED, "esearch.fcgi": FOUND, "efetch.fcgi": ARTICLE}


@dataclass
class Vendor:
    """A vendor of preprints and articles, and when it was asked. A minute of its pace is `minute` seconds here."""

    bench: Bench
    server: HTTPServer
    minute: float = 5.0
    refusals: list[Response] = field(default_factory=list[Response])
    began: float = 0.0  # before any request could leave
    asked: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])  # when, and what

    def answer(self, request: Request) -> Response:
        name = request.path.rpartition("/")[2]
        self.asked.append((time.monotonic(), name))
        return self.refusals.pop(0) if self.refusals else Response(BODIES[name])

    def worker(self, **given: Any) -> Worker:
        """A worker that asks this vendor."""
        base_urls = {name: self.server.url_for("") for name in ("ARXIV", "PUBMED")}
        return self.bench.a_worker(services=ServiceConfig(base_urls=base_urls), rate_window=self.minute, **given)

    def searched(self, tool: str = "ArXiv", **params: Any) -> Run:
        """A run that searches once."""
        node = {"component": tool, "query": "widgets", **params}
        return self.bench.start("begin -> search -> say", search=node, say=says("{search@formalized_content}"))

    def scaled(self, seconds: float) -> float:
        """What these seconds of the vendor's are here."""
        return seconds * self.minute / MINUTE

    def work(self, runs: Sequence[Run], *workers: Worker) -> None:
        """Let these workers carry all runs out, a thread a run, until each has succeeded."""
        self.began = time.monotonic()
        with at_work(self.bench, *workers, threads=len(runs)):
            until(lambda: all(run.status == "succeeded" for run in runs))

    def came_too_early(self, pace: VendorRateLimit) -> list[float]:
        """When requests came that `pace` did not allow yet, in seconds after the beginning.

        A request counts from the moment at which all of them were allowed to begin, not from the one before it: a busy
        machine may deliver one late and the next in time.
        """
        after = [at - self.began for at, _ in self.asked]
        span = self.scaled(pace.seconds)
        return [at for number, at in enumerate(after) if at < number // pace.requests * span - OF_CLOCKS]


@pytest.fixture
def vendor(bench: Bench, httpserver: HTTPServer) -> Vendor:
    vendor = Vendor(bench, httpserver)
    httpserver.expect_request(re.compile(".*")).respond_with_handler(vendor.answer)
    return vendor


def test_two_workers_ask_a_vendor_at_one_pace(vendor: Vendor):
    runs = [vendor.searched() for _ in range(6)]

    vendor.work(runs, vendor.worker(), vendor.worker())

    assert len(vendor.asked) == 6
    assert vendor.came_too_early(PREPRINTS) == []
    assert "We study widgets." in runs[0].said
    assert [run.activation("search").attempt for run in runs] == [1] * 6


def test_both_requests_of_a_search_keep_the_pace(vendor: Vendor):
    vendor.minute = 20.0
    runs = [vendor.searched("PubMed") for _ in range(4)]

    vendor.work(runs, vendor.worker(), vendor.worker())

    assert sorted(name for _, name in vendor.asked) == ["efetch.fcgi"] * 4 + ["esearch.fcgi"] * 4
    assert vendor.came_too_early(ARTICLES) == []


def test_tenants_with_keys_of_their_own_are_counted_apart(vendor: Vendor):
    vendor.minute = MINUTE
    runs = [vendor.searched("PubMed", api_key=f"key-{number}-0123456789") for number in range(3)]

    with at_work(vendor.bench, vendor.worker(), threads=3):
        until(lambda: all(run.status == "succeeded" for run in runs))

    assert [run.activation("search").attempt for run in runs] == [1] * 3
    with redis.Redis.from_url(vendor.bench.redis_url) as client:
        assert len(client.keys("easel:pace:*:state")) == 3
        assert "0123456789" not in str(client.keys("*"))


def test_a_search_that_must_wait_long_gives_its_place_up_and_is_sent_again_when_it_is_due(vendor: Vendor):
    vendor.minute = MINUTE
    first, second = vendor.searched(), vendor.searched()
    worker = vendor.worker()
    vendor.bench.play(worker)

    waiting = second.activation("search")
    assert (first.status, waiting.status, waiting.strikes, len(vendor.asked)) == ("succeeded", "ready", 0, 1)
    assert 0 < (waiting.not_before - datetime.now(UTC)).total_seconds() < PREPRINTS.seconds

    it_is_time(vendor.bench, second)
    vendor.bench.play(worker)

    assert (second.status, second.activation("search").attempt, len(vendor.asked)) == ("succeeded", 2, 2)


def test_an_agent_that_must_wait_does_not_repeat_the_calls_it_has_recorded(vendor: Vendor):
    vendor.minute = MINUTE
    calls = [{"name": "arxiv_search_0", "arguments": {"query": query}} for query in ("mice", "men")]
    vendor.bench.script = Script([*({"tool_calls": [call], "times": 1} for call in calls), {"reply": "Fine."}])
    tools = [{"component_name": "ArXiv", "name": "ArXiv", "params": {}}]
    agent = {"component": "Agent", "llm_id": "scripted", "tools": tools}
    agent["prompts"] = [{"role": "user", "content": "How are widgets?"}]
    run, worker = vendor.bench.start("begin -> model -> say", model=agent, say=says("{model@content}")), vendor.worker()
    vendor.bench.play(worker)
    assert (run.activation("model").status, len(vendor.asked)) == ("ready", 1)

    it_is_time(vendor.bench, run)
    vendor.bench.play(worker)

    assert (run.status, len(vendor.asked)) == ("succeeded", 2)
    assert run.said.endswith("Fine.")


def test_only_asking_counts_towards_a_tools_time(vendor: Vendor, monkeypatch: pytest.MonkeyPatch):
    vendor.minute = 40.0
    monkeypatch.setattr("worker.context.rate_limit_wait.MAX_WAIT_IN_PLACE", 2000.0)  # so that all wait at their places
    runs = [vendor.searched() for _ in range(4)]
    limit = 2 * vendor.scaled(PREPRINTS.seconds)  # the last of them waits for three times its pace

    def time_limit(*_: Any) -> float:
        return limit

    began = time.monotonic()
    with at_work(vendor.bench, vendor.worker(time_limit=time_limit), threads=4):
        until(lambda: all(run.status in ("succeeded", "failed") for run in runs))

    assert [run.status for run in runs] == ["succeeded"] * 4
    assert vendor.asked[-1][0] - began > limit


def test_a_cancelled_run_stops_waiting_at_once_and_asks_nobody(vendor: Vendor, monkeypatch: pytest.MonkeyPatch):
    vendor.minute = MINUTE * 1000 / PREPRINTS.seconds
    # so that the second waits at its place until it is due
    monkeypatch.setattr("worker.context.rate_limit_wait.MAX_WAIT_IN_PLACE", 2000.0)
    counted: list[str] = []
    counters = vendor.bench.coordinator.dispatch.counters
    vendor.bench.coordinator.dispatch.counters = replace(
        counters, count_rate_limit_wait=lambda: counted.append("waited")
    )
    first, second = vendor.searched(), vendor.searched()

    with at_work(vendor.bench, vendor.worker(), threads=2):
        until(lambda: bool(counted and vendor.asked))
        vendor.bench.lifecycle.cancel_run(vendor.bench.tenant_id, second.id)
        vendor.bench.lifecycle.cancel_run(vendor.bench.tenant_id, first.id)
        until(lambda: {first.status, second.status} <= {"cancelled", "succeeded"})

    assert counted == ["waited"]
    assert len(vendor.asked) == 1


def test_a_vendor_that_asks_for_time_is_given_it_by_every_worker(vendor: Vendor):
    vendor.minute = 2.0
    vendor.refusals = [Response("slowly", 429, {"Retry-After": "1"})]
    one, other = vendor.worker(), vendor.worker()
    first = vendor.searched()
    began = time.monotonic()
    vendor.bench.play(one)

    second = vendor.searched()
    vendor.bench.play(other)

    assert (first.status, second.status) == ("failed", "succeeded")
    assert vendor.asked[1][0] - began >= 0.99


def test_while_redis_is_away_each_process_keeps_the_pace_by_itself(vendor: Vendor):
    vendor.minute = 10.0
    vendor.bench.redis_url = REDIS_AWAY
    runs = [vendor.searched() for _ in range(4)]

    vendor.work(runs, vendor.worker())

    assert len(vendor.asked) == 4
    assert vendor.came_too_early(PREPRINTS) == []


def it_is_time(bench: Bench, run: Run) -> None:
    """What waits for its vendor is due, and the sweeper looks."""
    nothing_has_left_of_late(bench, run)
    Sweeper(bench.coordinator).tick()
