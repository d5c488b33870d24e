"""Tools of vendors as nodes and as functions of an Agent, over HTTP, with responses as the vendors document them."""

import gzip
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from sqlalchemy import update
from werkzeug import Request, Response

from components.tools import find
from providers.models.chat.scripted import Script
from providers.models.limits.idempotency_keys import HEADER
from scheduler.sweeper import sweeper
from scheduler.sweeper.sweeper import Sweeper
from store.tables.runs import activations as rows
from tests.builders import content
from tests.integration.engine import Bench, Run, at_work, until
from worker.services.factory import ServiceConfig

KEY = "key/12345678+secret"
KEYED = {"api_key": KEY}
QUICK = 0.6  # seconds per minute, so that rate limits of vendors do not slow the tests


@dataclass(frozen=True)
class Vendor:
    """A tool with its params, the arguments of a model, and the responses by the ends of their paths."""

    tool: str
    answers: Mapping[str, Any]
    expected: str  # a part of the main output
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    arguments: Mapping[str, Any] = field(default_factory=lambda: {"query": "widgets"})
    main: str = "formalized_content"

    @property
    def node(self) -> str:
        return self.tool.lower()


ATOM = """<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom"><title type="html">ArXiv Query: widgets</title><id>http://arxiv.org/api/x</id>
<opensearch:totalResults xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/">1</opensearch:totalResults>
<entry><id>http://arxiv.org/abs/1v1</id><updated>2026-01-01T00:00:00Z</updated><title>Small widgets</title>
<summary>We study   small widgets.</summary><author><name>Ann Lee</name></author>
<arxiv:comment xmlns:arxiv="http://arxiv.org/schemas/atom">8 pages</arxiv:comment>
<link href="http://arxiv.org/abs/1v1" rel="alternate" type="text/html"/>
<link title="pdf" href="http://arxiv.org/pdf/1v1" rel="related" type="application/pdf"/></entry></feed>"""
HITS = """<?xml version="1.0" encoding="UTF-8" ?>
<!DOCTYPE eSearchResult PUBLIC "-//NLM//DTD esearch 20060628//EN" "https://eutils.test/esearch.dtd">
<eSearchResult><Count>1</Count><RetMax>1</RetMax><IdList><Id>1</Id></IdList><TranslationSet/></eSearchResult>"""
ARTICLES = """<?xml version="1.0" ?>
<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2025//EN" "https://dtd.test/p.dtd">
<PubmedArticleSet><PubmedArticle><MedlineCitation Status="MEDLINE"><PMID Version="1">1</PMID><Article>
<Journal><JournalIssue CitedMedium="Print"><Volume>12</Volume></JournalIssue><Title>J Widget</Title></Journal>
<ArticleTitle>Widgets in H<sub>2</sub>O.</ArticleTitle><Abstract><AbstractText>They float.</AbstractText></Abstract>
</Article></MedlineCitation></PubmedArticle></PubmedArticleSet>"""
PAGE = """<html><body><div class="result results_links web-result"><h2><a class="result__a"
href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fexample.com%2Fa&amp;rut=1">Widget <b>duck</b></a></h2>
<a class="result__snippet" href="x">Ducks like <b>widgets</b>.</a></div></body></html>"""
SCHOLAR = """<html><body><div class="gs_r"><div class="gs_ri"><h3 class="gs_rt"><a href="https://example.org/w">
Scholarly widgets</a></h3><div class="gs_a">A Lee - J Widget, 2024 - example.org</div>
<div class="gs_rs">On widgets.</div></div></div></body></html>"""
STOCK_NEWS = 'easel({"code":0,"result":{"cmsArticleWebOld":[{"title":"<em>Acme</em> up","content":"4%","code":"1"}]}})'
WEB = {"title": "Widget prices rise", "url": "https://example.com/a", "content": "Up 4%.", "score": "0.9", "more": {}}

VENDORS: Sequence[Vendor] = (
    Vendor("AkShare", {"/search/jsonp": STOCK_NEWS}, ">Acme up</a>"),
    Vendor("ArXiv", {"/api/query": ATOM}, "We study   small widgets.", {"top_n": "3"}),
    Vendor("BGPT", {"/mcp-search": {"results": [{"title": "Mice", "year": 2024}]}}, "Year: 2024", {"days_back": "7"}),
    Vendor("Crawler", {"/page": "<h1>Hi</h1>"}, "# Hi", arguments={"query": "https://example.com/page"}),
    Vendor(
        "DeepL",
        {"/v2/translate": {"translations": [{"detected_source_language": "ZH", "text": "Hello"}]}},
        "Hello",
        {"auth_key": f"{KEY}:fx", "target_lang": "EN-US"},
    ),
    Vendor("DuckDuckGo", {"/html/": PAGE}, "Ducks like widgets.", {"channel": "text"}),
    Vendor(
        "GitHub",
        {"/repositories": {"total_count": 1, "items": [{"name": "w", "html_url": "u", "description": None}]}},
        "Content:\n stars:",
        {"access_token": KEY},
    ),
    Vendor(
        "Google",
        {"/search.json": {"search_metadata": {}, "organic_results": [{"title": "Acme", "snippet": "Makes widgets."}]}},
        "Makes widgets.",
        KEYED,
        arguments={"q": "widgets", "num": "3"},
    ),
    Vendor("GoogleScholar", {"/scholar": SCHOLAR}, "author: A Lee\n Abstract: On widgets."),
    Vendor("Jin10", {"/flash": {"status": 200, "data": [{"data": {"content": "Gold up"}}]}}, "Gold up"),
    Vendor("KeenableSearch", {"/v1/search/public": {"results": [{**WEB, "snippet": "K  up."}]}}, "K up."),
    Vendor("PubMed", {"/esearch.fcgi": HITS, "/efetch.fcgi": ARTICLES}, "Title: Widgets in H2O."),
    Vendor("QueritSearch", {"/v1/search": {"took": "9ms", "results": {"result": [{"snippet": "Q."}]}}}, "Q.", KEYED),
    Vendor(
        "QueritContents",
        {"/v1/contents": {"results": [{"url": "https://a.test", "content": "c"}], "statuses": []}},
        "'content': 'c'",
        KEYED,
        arguments={"urls": "https://a.test, https://b.test"},
        main="json",
    ),
    Vendor(
        "QWeather",
        {"/lookup": {"code": "200", "location": [{"id": "1"}]}, "/now": {"code": "200", "now": {"temp": "21"}}},
        '{"temp": "21"}',
        {"web_apikey": KEY},
    ),
    Vendor("SearXNG", {"/search": {"results": [WEB]}}, "Up 4%.", {"searxng_url": "https://searx.test/", "top_n": "1"}),
    Vendor("TavilySearch", {"/search": {"answer": None, "images": [], "results": [WEB]}}, "Up 4%.", KEYED),
    Vendor(
        "TavilyExtract",
        {"/extract": {"results": [{"url": "u", "raw_content": "r", "images": []}], "response_time": "0.02"}},
        "'raw_content': 'r'",
        KEYED,
        arguments={"urls": ["https://a.test"]},
        main="json",
    ),
    Vendor(
        "TuShare",
        {"/": {"code": 0, "msg": None, "data": {"fields": ["id", "content"], "items": [[2, "widgets up"]]}}},
        "widgets up",
        {"token": KEY},
    ),
    Vendor(
        "Wikipedia",
        {"/w/api.php": {"query": {"pages": {"9": {"index": 1, "title": "Widget", "extract": "A gadget."}}}}},
        "A gadget.",
    ),
)
DONE = {"any_message": "How are widgets?", "reply": "Fine."}


@dataclass
class VendorServer:
    """A server of all vendors, each below its name; it counts requests and varies the encoding of responses."""

    server: HTTPServer
    override: Callable[[Request, int], Response | None] = lambda request, times: None
    request_counts: Counter[str] = field(default_factory=Counter[str])  # by tool

    @property
    def services(self) -> ServiceConfig:
        return ServiceConfig(base_urls={each.tool.upper(): self.server.url_for(f"/{each.tool}") for each in VENDORS})

    def answer(self, request: Request) -> Response:
        name, _, rest = request.path.lstrip("/").partition("/")
        self.request_counts[name] += 1
        override = self.override(request, self.request_counts[name])
        if override is not None:
            return override
        vendor = next(each for each in VENDORS if each.tool == name)
        body = next((answer for end, answer in vendor.answers.items() if f"/{rest}".endswith(end)), None)
        if body is None:
            return Response("there is no such path", 404)
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        return encode_response(text, vendor)


def encode_response(text: str, vendor: Vendor) -> Response:
    """Encode a text in UTF-8; by vendor plain, with gzip, in chunks, or with a byte order mark."""
    kind = "text/html; charset=utf-8" if text.startswith("<h") else "text/xml" if text.startswith("<") else "text/plain"
    data = text.encode()
    match VENDORS.index(vendor) % 4:
        case 1:
            return Response(gzip.compress(data), headers={"Content-Encoding": "gzip"}, content_type=kind)
        case 2:
            return Response((data[at : at + 7] for at in range(0, len(data), 7)), content_type=kind)
        case 3 if text.startswith("{"):
            return Response(b"\xef\xbb\xbf" + data, content_type="application/json; charset=iso-8859-1")
        case _:
            return Response(data, content_type=kind)


@pytest.fixture
def vendors(httpserver: HTTPServer) -> VendorServer:
    vendors = VendorServer(httpserver)
    httpserver.expect_request(re.compile(".*")).respond_with_handler(vendors.answer)
    return vendors


def run_as_nodes(bench: Bench, vendors: VendorServer) -> Run:
    """Run all tools as parallel nodes, and a Message with their results."""
    nodes = {each.node: {"component": each.tool, **each.params, **each.arguments} for each in VENDORS}
    names = ", ".join(nodes)
    results = " ".join(f"{{{each.node}@{each.main}}}" for each in VENDORS)
    run = bench.start(f"begin -> {names}; {names} -> say", **nodes, say=content(results))
    with at_work(bench, bench.a_worker(services=vendors.services, rate_window=QUICK)):
        until(lambda: run.status in ("succeeded", "failed"))
    return run


def run_as_agent(
    bench: Bench,
    vendors: VendorServer,
    *,
    seconds: float = 60.0,
    then: Sequence[Mapping[str, Any]] = (),
    started: Callable[[Run], None] = lambda run: None,
    **params: Any,
) -> Run:
    """Run all tools as calls of one Agent round, then the calls of `then`. `seconds` is the time limit of each tool."""
    tools = [{"component_name": each.tool, "name": each.tool, "params": {**each.params, **params}} for each in VENDORS]
    calls = [
        {"name": f"{function_of(each)}_{number}", "arguments": {**each.arguments, "unknown": 1}}
        for number, each in enumerate(VENDORS)
    ]
    bench.script = Script([{"tool_calls": calls, "times": 1}, *then, {"reply": "Fine."}])
    agent = {
        "component": "Agent",
        "llm_id": "scripted",
        "sys_prompt": "You look.",
        "prompts": [{"role": "user", "content": "How are widgets?"}],
        "tools": tools,
    }
    run = bench.start("begin -> model -> say", model=agent, say=content("{model@content}"))

    started(run)

    def limit(component: str, *_: Any) -> float:
        return seconds if find(component) else 60.0

    with at_work(bench, bench.a_worker(services=vendors.services, time_limit=limit, rate_window=QUICK), threads=1):
        until(lambda: run.status in ("succeeded", "failed"))
    return run


def function_of(vendor: Vendor) -> str:
    tool = find(vendor.tool)
    assert tool is not None
    return tool.function


def results(run: Run) -> dict[str, str]:
    """Return the result of each tool that the model received."""
    used = run.outputs("model")["use_tools"]
    return {each.tool: str(call["results"]) for each, call in zip(VENDORS, used, strict=True)}


def references(run: Run) -> Mapping[str, Any]:
    return next(event.body["reference"] for event in run.events if event.name == "message_end")


def test_every_tool_gives_the_same_result_as_a_node_and_as_an_agent_tool(bench: Bench, vendors: VendorServer):
    nodes = run_as_nodes(bench, vendors)
    agent = run_as_agent(bench, vendors)

    assert (nodes.status, agent.status) == ("succeeded", "succeeded"), nodes.row["error"]
    used = agent.outputs("model")["use_tools"]
    for each, call in zip(VENDORS, used, strict=True):
        by_node = nodes.outputs(each.node)[each.main]
        assert each.expected in str(by_node), (each.tool, by_node)
        assert call["results"] == by_node, each.tool
    stored = f"{nodes.events} {nodes.streams} {used} {agent.events} {[nodes.outputs(each.node) for each in VENDORS]}"
    assert KEY not in stored


def test_references_of_parallel_tool_nodes_have_the_same_numbers_in_every_run(bench: Bench, vendors: VendorServer):
    first, again = run_as_nodes(bench, vendors), run_as_nodes(bench, vendors)

    assert first.text == again.text
    assert references(first) == references(again)
    assert len(references(first)["chunks"]) >= 10


def test_every_tool_except_google_scholar_retries_a_refused_request(bench: Bench, vendors: VendorServer):
    vendors.override = lambda request, times: Response("slow", 429, {"Retry-After": "0"}) if times == 1 else None

    texts = results(run_as_agent(bench, vendors, max_retries="1", delay_after_error=30))

    assert texts.pop("GoogleScholar") == "GoogleScholar error: Google Scholar refuses programs for now."
    assert {each.tool for each in VENDORS if each.expected not in texts.get(each.tool, each.expected)} == set()


EMPTY_PAGES = ("Crawler", "DuckDuckGo", "GoogleScholar")  # they read it as an ordinary page
FAULTS: Mapping[str, tuple[Callable[..., Response], str, tuple[str, ...]]] = {
    "a page": (lambda: Response("<html><p>We are busy</p></html>", content_type="text/html"), "is not ", EMPTY_PAGES),
    "a stump": (lambda: Response('{"results": [{"ti', content_type="application/json"), "is not ", EMPTY_PAGES),
    "a refusal": (lambda: Response(f"not with {KEY}", 403), r"HTTP 403: not with \[REDACTED\]|HTTP 403: not with ", ()),
    "a way in": (
        lambda: Response("", 302, {"Location": "http://127.0.0.1/"}),
        r"non-public address \(127\.0\.0\.1\)|redirects a request with a body|URL not valid",
        (),
    ),
    "noise": (
        lambda: Response(b"\x1f\x8b\x08" + b"\xff" * 99, headers={"Content-Encoding": "gzip"}),
        "cannot be decompressed",
        (),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_invalid_response_of_a_vendor_reaches_the_model_as_an_error_text(
    bench: Bench, vendors: VendorServer, fault: str
):
    respond, message, others = FAULTS[fault]
    vendors.override = lambda request, times: respond()

    run = run_as_agent(bench, vendors, delay_after_error=0)

    assert run.status == "succeeded"
    read = {tool: text for tool, text in results(run).items() if tool not in others}
    assert {tool: text for tool, text in read.items() if not re.search(message, text) or len(text) > 400} == {}


def test_tool_call_to_an_unresponsive_vendor_ends_at_its_time_limit(bench: Bench, vendors: VendorServer):
    may_answer = threading.Event()
    vendors.override = lambda request, times: Response("late") if may_answer.wait(20) else None

    try:
        run = run_as_agent(bench, vendors, seconds=0.4, max_retries=1, delay_after_error=0)
    finally:
        may_answer.set()

    message = re.compile(r"no complete answer within 0\.\d+ seconds|Operation timed out after 0\.\d+ seconds")
    assert run.status == "succeeded"
    assert {tool: text for tool, text in results(run).items() if not message.search(text)} == {}


# -- lost workers ----------------------------------------------------------------------------------------------------
LOST = [each for each in VENDORS if each.tool in ("ArXiv", "DeepL", "PubMed", "QWeather", "TavilySearch", "TuShare")]
"""One of each kind: GET, POST with a form or JSON, one or two requests."""


@pytest.fixture
def sweeper_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sweeper act at its first tick."""
    monkeypatch.setattr(sweeper, "MIN_UNINTERRUPTED", 0.0)


@pytest.mark.usefixtures("sweeper_without_delay")
def test_tool_node_of_a_lost_worker_repeats_its_requests_and_gives_the_same_result(bench: Bench, vendors: VendorServer):
    expected = run_as_nodes(bench, vendors)
    needed, vendors.request_counts = Counter({each.tool: vendors.request_counts[each.tool] for each in LOST}), Counter()
    nodes = {each.node: {"component": each.tool, **each.params, **each.arguments} for each in LOST}
    results = " ".join(f"{{{each.node}@{each.main}}}" for each in LOST)
    run = bench.start(f"begin -> {' -> '.join(nodes)} -> say", **nodes, say=content(results))
    keys: dict[str, list[str | None]] = {}

    def lose_worker(request: Request, times: int) -> None:
        name = request.path.split("/")[1]
        if times % needed[name] == 0:  # the last response that the attempt needs
            keys.setdefault(name, []).append(request.headers.get(HEADER))
        if times == needed[name]:
            lose_first_attempt(bench, run, name.lower())

    vendors.override = lose_worker
    with at_work(bench, bench.a_worker(services=vendors.services, rate_window=QUICK), threads=1):
        until(lambda: run.status in ("succeeded", "failed"))

    assert run.status == "succeeded"
    assert vendors.request_counts == Counter({name: 2 * times for name, times in needed.items()})
    assert [run.activation(each.node).attempt for each in LOST] == [2] * len(LOST)
    assert [run.outputs(each.node) for each in LOST] == [expected.outputs(each.node) for each in LOST]
    assert {name for name, (first, second) in keys.items() if first != second} == set()


def lose_first_attempt(bench: Bench, run: Run, node: str) -> None:
    """Expire the lease of the first attempt of a node, even if it is renewed meanwhile."""

    def is_lost() -> bool:
        with bench.database.transaction() as tx:
            first = (rows.c.run_id == run.id, rows.c.node_id == node, rows.c.status == "running", rows.c.attempt == 1)
            tx.execute(update(rows).where(*first).values(lease_until=rows.c.lease_until - timedelta(hours=1)))
        Sweeper(bench.coordinator).tick()
        return run.activation(node).crash_count > 0

    until(is_lost)


@pytest.mark.usefixtures("sweeper_without_delay")
def test_agent_of_a_lost_worker_does_not_repeat_recorded_tool_calls(bench: Bench, vendors: VendorServer):
    run_as_agent(bench, vendors)
    needed, vendors.request_counts = vendors.request_counts, Counter()
    number = [each.tool for each in VENDORS].index("GitHub")
    more = {"name": f"github_search_{number}", "arguments": {"query": "widgets"}}

    started: list[Run] = []

    def lose_worker(request: Request, times: int) -> None:
        if times == 2 and request.path.startswith("/GitHub/"):
            lose_first_attempt(bench, started[0], "model")

    vendors.override = lose_worker
    run = run_as_agent(bench, vendors, then=[{"tool_calls": [more], "times": 1}], started=started.append)

    assert (run.status, run.activation("model").attempt) == ("succeeded", 2)
    assert vendors.request_counts == needed + Counter(GitHub=2)
