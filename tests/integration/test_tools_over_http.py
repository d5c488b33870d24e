"""Tools over the real HTTP client, against a local server with the answers of their vendors."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from canvas.outcome import Failed, Finished
from components.tools import find
from components.tools.framework.tool_node import tool_component
from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import Services
from tests.fakes import FakeContext
from tests.integration.engine import until

KEY = "key-12345678"


@dataclass(frozen=True)
class Vendor:
    """A tool, the path of its vendor, and the vendor's answers with a result, without one, and with an error."""

    tool: str
    path: str
    good: str
    found: str  # in the text
    empty: str
    refusal: str
    refused: str  # in the error
    kind: str = "application/json"
    method: str = "GET"


def rows(*articles: Any) -> str:
    return f"easel({json.dumps({'code': 0, 'result': {'cmsArticleWebOld': articles}})})"


VENDORS = [
    Vendor(
        "AkShare",
        "/search/jsonp",
        good=rows({"title": "Acme", "content": "Up 4%", "code": "1"}),
        found="Up 4%",
        empty=rows(),
        refusal='easel({"code": 9, "msg": "closed"})',
        refused="closed",
    ),
    Vendor(
        "Jin10",
        "/data-api/flash",
        good='{"status": 200, "data": [{"data": {"content": "Gold up"}}]}',
        found="Gold up",
        empty='{"status": 200, "data": []}',
        refusal=json.dumps({"status": 401, "message": f"bad key {KEY}"}),
        refused="bad key [REDACTED]",
    ),
    Vendor(
        "TuShare",
        "/",
        good='{"code": 0, "data": {"fields": ["content"], "items": [["page up"]]}}',
        found="page up",
        empty='{"code": 0, "data": {"fields": ["content"], "items": []}}',
        refusal=json.dumps({"code": 2002, "msg": f"no permission for {KEY}"}),
        refused="no permission for [REDACTED]",
        method="POST",
    ),
    Vendor(
        "Crawler",
        "/page",
        good="<h1>Hi</h1>",
        found="# Hi",
        empty="<p></p>",
        refusal="%PDF-1.7",
        refused="An unexpected error occurred: it is a PDF",
        kind="text/html",
    ),
]
each_vendor = pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.tool)


@pytest.fixture(scope="module")
def server() -> Iterator[HTTPServer]:
    with HTTPServer(host="127.0.0.1", threaded=True) as server:
        yield server


@pytest.fixture(autouse=True)
def clean(server: HTTPServer) -> Iterator[None]:
    yield
    server.clear()


def outcome_of(server: HTTPServer, vendor: Vendor, *, limit: float = 10.0, **params: Any) -> Finished | Failed:
    """Run the tool as a node. The deployment sets the server's URL, except that of the Crawler's page."""
    tool = find(vendor.tool)
    assert tool is not None
    is_page = vendor.tool == "Crawler"
    query = server.url_for(vendor.path) if is_page else "page"
    secrets = {"token": KEY, "secret_key": KEY}
    stored = {"query": query, "delay_after_error": 0, **(secrets if not is_page else {}), **params}

    async def work() -> Any:
        http = HttpClient(Guard(allowed=("127.0.0.1",) if is_page else ()))
        base_urls = {} if is_page else {vendor.tool.upper(): server.url_for("/").rstrip("/")}
        ctx = FakeContext(services=Services(http, base_urls=base_urls), limits={vendor.tool: limit}, params=stored)
        try:
            return await tool_component(tool).run(tool.params.model_validate(stored), ctx)  # type: ignore[misc]  # async
        finally:
            await http.aclose()

    return asyncio.run(work())


def expect_answer(server: HTTPServer, vendor: Vendor, body: str, status: int = 200, **headers: str) -> None:
    http_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    server.expect_request(vendor.path, method=vendor.method).respond_with_data(
        body, status, headers=http_headers, content_type=vendor.kind
    )


def text_of(outcome: Finished | Failed) -> Mapping[str, Any]:
    assert isinstance(outcome, Finished), outcome
    return outcome.outputs["formalized_content"]


def error_of(outcome: Finished | Failed) -> str:
    assert isinstance(outcome, Failed), outcome
    return outcome.error


@each_vendor
def test_tool_result_is_the_text_of_the_vendor(server: HTTPServer, vendor: Vendor):
    expect_answer(server, vendor, vendor.good)

    assert vendor.found in text_of(outcome_of(server, vendor))


@each_vendor
def test_empty_result_is_an_empty_text(server: HTTPServer, vendor: Vendor):
    expect_answer(server, vendor, vendor.empty)

    assert text_of(outcome_of(server, vendor)) == ""


@each_vendor
def test_error_has_the_vendors_text_without_secrets(server: HTTPServer, vendor: Vendor):
    expect_answer(server, vendor, vendor.refusal)

    assert error_of(outcome_of(server, vendor, max_retries=2)).startswith(vendor.refused)
    assert len(server.log) == 1


@each_vendor
def test_rate_limited_request_is_retried_after_the_vendors_delay(server: HTTPServer, vendor: Vendor):
    rate_limited = server.expect_oneshot_request(vendor.path, method=vendor.method)
    rate_limited.respond_with_data("slow down", 429, headers={"Retry-After": "0"})
    expect_answer(server, vendor, vendor.good)

    assert vendor.found in text_of(outcome_of(server, vendor, max_retries="1", delay_after_error=60))


@each_vendor
def test_slow_vendor_times_out(server: HTTPServer, vendor: Vendor):
    has_begun, may_answer = threading.Event(), threading.Event()

    def wait(request: Request) -> Response:
        has_begun.set()
        may_answer.wait(30)
        return Response("late")

    server.expect_request(vendor.path).respond_with_handler(wait)
    try:
        error = error_of(outcome_of(server, vendor, limit=0.2))
    finally:
        may_answer.set()
        if (
            has_begun.is_set()
        ):  # the request is logged when it is answered; wait, so that it is not in the next test's log
            until(lambda: server.log)

    assert "within 0.2 seconds" in error or error.startswith("Operation timed out after 0.2 seconds")


@each_vendor
def test_redirect_to_a_private_address_is_refused(server: HTTPServer, vendor: Vendor):
    expect_answer(server, vendor, "", 302, Location="http://127.0.0.2/secret")

    error = error_of(outcome_of(server, vendor, max_retries=2))

    assert (
        error.startswith("URL not valid: URL resolves to a non-public address (127.0.0.2)")
        if vendor.tool == "Crawler"
        else "redirects a request with a body" in error or ("non-public address (127.0.0.2)" in error)
    )
    assert len(server.log) == 1


@each_vendor
@pytest.mark.parametrize("body", ["<html", "[1]", "null", "\0\0", "x" * 300_000])
def test_garbage_response_is_a_clear_error_or_a_page(server: HTTPServer, vendor: Vendor, body: str):
    expect_answer(server, vendor, body)

    outcome = outcome_of(server, vendor)

    if vendor.tool == "Crawler":
        assert len(text_of(outcome)) <= 200_000
    else:
        assert error_of(outcome).startswith(("The answer is not valid JSON", "The answer is not a JSON object"))
        assert len(error_of(outcome)) < 300
