"""Tools with the real HTTP client, against a local server with good, invalid, late or missing answers of their vendors.

The vendors themselves are not called.
"""

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from canvas.outcome import Failed, Finished
from components import tools
from components.tools.framework.base import MAX_RETRY_DELAY, Tool
from components.tools.framework.tool_node import tool_component
from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import Services
from tests.fakes import FakeContext

KEY = "vendor-key-0123456789"
TITLE, URL, TEXT = "Widget prices rise", "https://example.com/a", "Widget prices rose 4% in May."
BLOCK = f"\nID: 373\n├── Title: {TITLE}\n├── URL: {URL}\n└── Content:\n{TEXT}"
ANYWHERE = re.compile(".*")
NODE_TIMEOUT_S = 50.0  # time limit of a node; less than the longest pause between two tries


@dataclass(frozen=True)
class Vendor:
    """The request for one vendor, and its answers by path: `found` with a result, `nothing` without one."""

    tool: str
    found: Mapping[str, Any]
    shown: str  # text in the node's main output, or in its JSON
    nothing: Mapping[str, Any]
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    argument: str = "query"  # the required argument
    empty: Any = ""  # the main output without a result

    @property
    def own(self) -> Tool[Any]:
        found = tools.find(self.tool)
        assert found is not None
        return found


def pages(name: str, *rows: Any, text: str = "content") -> dict[str, Any]:
    row = {"title": TITLE, "url": URL, text: TEXT}
    return {name: [row, *rows]}


LOCATION = {"code": "200", "location": [{"id": "101"}]}
VENDORS = {
    vendor.tool: vendor
    for vendor in (
        Vendor(
            "BGPT",
            {"/api/mcp-search": {"results": [{"title": TITLE, "url": URL, "abstract": TEXT}]}},
            f"Abstract: {TEXT}\nMethods: -",
            {"/api/mcp-search": {"results": []}},
            {"api_key": KEY},
        ),
        Vendor(
            "GitHub",
            {"/search/repositories": {"items": [{"name": "w", "html_url": URL, "description": "D", "watchers": 42}]}},
            "D\n stars:42",
            {"/search/repositories": {"items": []}},
            {"access_token": KEY},
        ),
        Vendor(
            "Google",
            {"/search.json": {"organic_results": [{"title": TITLE, "link": URL, "snippet": TEXT}]}},
            BLOCK,
            {"/search.json": {"organic_results": []}},
            {"api_key": KEY},
            argument="q",
        ),
        Vendor(
            "KeenableSearch",
            {"/v1/search": pages("results", None, text="snippet")},
            BLOCK,
            {"/v1/search": {"results": None}},
            {"api_key": KEY},
        ),
        Vendor(
            "QueritContents",
            {"/v1/contents": {"results": [{"url": URL, "content": TEXT}], "statuses": []}},
            TEXT,
            {"/v1/contents": {"results": []}},
            {"api_key": KEY},
            argument="urls",
            empty={"results": []},
        ),
        Vendor(
            "QueritSearch",
            {"/v1/search": {"results": pages("result", "junk", text="snippet")}},
            BLOCK,
            {"/v1/search": {"results": {"result": []}}},
            {"api_key": KEY},
        ),
        Vendor(
            "QWeather",
            {"/v2/city/lookup": LOCATION, "/v7/weather/3d": {"code": "200", "daily": [{"tempMax": "21"}]}},
            '{"tempMax": "21"}',
            {"/v2/city/lookup": LOCATION, "/v7/weather/3d": {"code": "200", "daily": []}},
            {"web_apikey": KEY, "time_period": "3d"},
        ),
        Vendor(
            "TavilyExtract",
            {"/extract": pages("results")},
            TEXT,
            {"/extract": {}},
            {"api_key": KEY},
            argument="urls",
            empty=[],
        ),
        Vendor(
            "TavilySearch",
            {"/search": pages("results")},
            BLOCK,
            {"/search": {"results": []}},
            {"api_key": KEY},
        ),
    )
}
every_vendor = pytest.mark.parametrize("vendor", VENDORS.values(), ids=VENDORS)


def node_of(vendor: Vendor, base_url: str, **more: Any) -> tuple[Finished | Failed, FakeContext]:
    """Run the tool as a node, with the deployment's guard and the real client."""
    ctx = FakeContext(limits={vendor.tool: more.pop("limit", NODE_TIMEOUT_S)})
    params = {vendor.argument: "https://e.test/?q=tea", "delay_after_error": 0, **vendor.params, **more}

    async def outcome() -> Any:
        http = HttpClient(Guard())
        ctx.services = Services(http, base_urls={vendor.tool.upper(): base_url})
        try:
            work: Any = tool_component(vendor.own).run(vendor.own.params.model_validate(params), ctx)
            return await work
        finally:
            await http.aclose()

    found = asyncio.run(outcome())
    assert isinstance(found, Finished | Failed)
    return found, ctx


def error_of(vendor: Vendor, base_url: str, **more: Any) -> str:
    outcome, _ = node_of(vendor, base_url, **more)
    assert isinstance(outcome, Failed), outcome
    assert KEY not in json.dumps([outcome.error, dict(outcome.outputs)])
    assert "Traceback" not in outcome.error
    return outcome.error


def serve(httpserver: HTTPServer, answers: Mapping[str, Any]) -> str:
    for path, body in answers.items():
        httpserver.expect_request(path).respond_with_json(body)
    return httpserver.url_for("")


@every_vendor
def test_vendor_result_is_the_output_and_is_the_same_on_a_second_call(vendor: Vendor, httpserver: HTTPServer):
    address = serve(httpserver, vendor.found)

    first, ctx = node_of(vendor, address)
    second, again = node_of(vendor, address)

    assert isinstance(first, Finished), first
    main = first.outputs[vendor.own.main_output]
    assert vendor.shown in (main if isinstance(main, str) else json.dumps(main))
    assert first == second
    assert ctx.reference_store == again.reference_store
    assert KEY not in json.dumps([dict(first.outputs), ctx.inputs, ctx.reference_store])


@every_vendor
def test_empty_vendor_result_is_not_an_error(vendor: Vendor, httpserver: HTTPServer):
    outcome, ctx = node_of(vendor, serve(httpserver, vendor.nothing))

    assert isinstance(outcome, Finished), outcome
    assert outcome.outputs[vendor.own.main_output] == vendor.empty
    assert ctx.reference_store["chunks"] == {}


@every_vendor
def test_refused_request_is_sent_once_and_its_error_has_the_key_redacted(vendor: Vendor, httpserver: HTTPServer):
    httpserver.expect_request(ANYWHERE).respond_with_data(f"no such key: {KEY}", status=403)

    error = error_of(vendor, httpserver.url_for(""), max_retries=3)

    assert error.endswith("HTTP 403: no such key: [REDACTED]")
    assert len(httpserver.log) == 1


@every_vendor
def test_rate_limited_request_is_retried_after_the_vendors_delay(vendor: Vendor, httpserver: HTTPServer):
    httpserver.expect_oneshot_request(ANYWHERE).respond_with_data("busy", 429, {"Retry-After": "0"})

    outcome, _ = node_of(vendor, serve(httpserver, vendor.found), max_retries=1, delay_after_error=MAX_RETRY_DELAY)

    assert isinstance(outcome, Finished), outcome  # it did not time out


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@every_vendor
def test_request_times_out_with_the_node_if_the_vendor_does_not_answer(
    vendor: Vendor, httpserver: HTTPServer, release: threading.Event
):
    answered: list[str] = []

    def never_answer(request: Request) -> Response:
        release.wait(NODE_TIMEOUT_S)
        answered.append(request.path)
        return Response("{}")

    httpserver.expect_request(ANYWHERE).respond_with_handler(never_answer)

    error = error_of(vendor, httpserver.url_for(""), limit=0.2)
    answered_before_release = list(answered)
    release.set()

    assert error.startswith("Operation timed out after 0.2 seconds. An operator can raise COMPONENT_EXEC_TIMEOUT_")
    assert answered_before_release == []


@every_vendor
@pytest.mark.parametrize("status", [302, 307])
def test_redirect_to_a_private_address_is_refused(vendor: Vendor, status: int, httpserver: HTTPServer):
    private = f"http://127.0.0.1:{httpserver.port}/inside"
    httpserver.expect_oneshot_request("/inside").respond_with_json({"secret": "inside"})
    httpserver.expect_request(ANYWHERE).respond_with_data("", status, {"Location": private})

    error = error_of(vendor, httpserver.url_for(""), max_retries=2)

    assert "not allowed" in error or "to another server" in error
    assert [request.path for request, _ in httpserver.log if request.path == "/inside"] == []


INVALID_BODIES = {
    "a page": b"<html><h1>Sign in</h1></html>",
    "nothing": b"",
    "cut off": b'{"results": [{"title": "t',
    "null": b"null",
    "a number": b"7",
    "another type": b'{"results": 7, "items": 7, "organic_results": 7, "code": "200", "location": 7}',
    "no text": b"\xff\xfe\x00\x01",
    "too much": b"[" + b" " * (10 * 1024 * 1024) + b"]",
}


@pytest.mark.parametrize("body", INVALID_BODIES.values(), ids=INVALID_BODIES)
@every_vendor
def test_unreadable_response_is_a_short_error(vendor: Vendor, body: bytes, httpserver: HTTPServer):
    httpserver.expect_request(ANYWHERE).respond_with_data(body, content_type="application/json")

    error = error_of(vendor, httpserver.url_for(""))

    assert error
    assert len(error) < 400
